//! Access to the state in socket storage.

use aya_ebpf::{
    bindings::{BPF_SK_STORAGE_GET_F_CREATE, bpf_sock},
    helpers::generated::bpf_sk_storage_get,
};
use stormdrill_wire::conn::Conn;

use crate::maps::CONNS;

/// The connection's state, null if it has none.
#[inline(always)]
pub fn get(sk: *mut bpf_sock) -> *mut Conn {
    // SAFETY: a null-checked socket of the context. aya's wrapper takes the contexts of other hooks only.
    unsafe { bpf_sk_storage_get((&raw const CONNS).cast_mut().cast(), sk.cast(), core::ptr::null_mut(), 0).cast() }
}

/// The connection's state, made from zeroes where there is none; null without memory.
#[inline(always)]
pub fn get_or_create(sk: *mut bpf_sock) -> *mut Conn {
    // SAFETY: as above.
    unsafe {
        bpf_sk_storage_get((&raw const CONNS).cast_mut().cast(), sk.cast(), core::ptr::null_mut(), BPF_SK_STORAGE_GET_F_CREATE as u64)
            .cast()
    }
}
