//! Access to the state in socket storage.

use aya_ebpf::{
    bindings::{__sk_buff, BPF_SK_STORAGE_GET_F_CREATE, bpf_sock},
    helpers::{bpf_sk_fullsock, generated::bpf_sk_storage_get},
};
use stormdrill_wire::{
    abi::role,
    conn::{Book, Conn},
};

use crate::maps::CONNS;

/// The connection's state, null if it has none.
#[inline(always)]
pub fn get(sk: *mut bpf_sock) -> *mut Conn {
    // SAFETY: a null-checked socket of the context. aya's wrapper takes the contexts of other hooks only.
    unsafe { bpf_sk_storage_get((&raw const CONNS).cast_mut().cast(), sk.cast(), core::ptr::null_mut(), 0).cast() }
}

/// Whether another CPU is still filling the state in. A connecting socket's is made before any packet.
///
/// # Safety
/// `conn` must point to a value of the storage map.
#[inline(always)]
pub unsafe fn is_unfinished(conn: *const Conn) -> bool {
    // SAFETY: the caller's; what another CPU writes is read in one piece.
    unsafe {
        let life = core::ptr::read_volatile(&raw const (*conn).book.life);
        life & (Book::ESTABLISHED | Book::FOUND_OPEN) == 0 && (*conn).book.role != role::DOWNSTREAM
    }
}

/// The state of the connection that a packet belongs to.
#[inline(always)]
pub fn of(skb: *mut __sk_buff) -> Option<*mut Conn> {
    let conn = get(socket(skb)?);
    if conn.is_null() { None } else { Some(conn) }
}

/// The full socket of a packet.
#[inline(always)]
pub fn socket(skb: *mut __sk_buff) -> Option<*mut bpf_sock> {
    // SAFETY: a field of a valid context; the helper takes any socket and answers null if it is not a full one.
    unsafe {
        let sk = (*skb).__bindgen_anon_2.sk;
        if sk.is_null() {
            return None;
        }
        let sk = bpf_sk_fullsock(sk);
        if sk.is_null() { None } else { Some(sk) }
    }
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
