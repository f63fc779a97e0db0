//! `stormdrill validate`: needs no privilege and opens no socket.
