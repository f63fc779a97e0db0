//! w
#![no_std]
