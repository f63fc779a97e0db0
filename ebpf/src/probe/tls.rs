//! Plaintext of TLS connections, from the calls of OpenSSL's library that carry it.
//!
//! A probe on the library knows the thread and the library's object, not the socket; the packet hook knows the socket. They meet where the library
//! sends during a call: the packet then leaves in the thread that is in the call, while that thread has the socket's lock. (A packet that leaves
//! because an acknowledgement came, in a softirq on top of whichever thread, does not have it: `owned` is set by system calls only.)
//! Programs that let the library write to memory, and send that themselves, do so right after the call, in the same thread. There a handshake's
//! record is what ties the object of the thread's last call to a socket: it opens the connection, and nothing else of it can have been sent.
//! From then on the object stands for the connection, and what is read and written with it is read by the same machines as bytes from the wire.

use aya_ebpf::{
    EbpfContext,
    bindings::{__sk_buff, BPF_ANY},
    helpers::generated::{bpf_get_current_task, bpf_map_update_elem, bpf_probe_read_kernel, bpf_skb_load_bytes},
    macros::{cgroup_skb, map},
    maps::{Array, LruHashMap, PerCpuArray, ProgramArray},
    programs::SkBuffContext,
};
use stormdrill_wire::{
    abi::{EdgeCounters, Settings, protocol},
    conn::Book,
    flow::Flow,
    passive::Passive,
    ring::Ring,
};

use crate::{
    burst_passive, conns, count, hook, maps,
    packet::{Chunk, forget},
    scratch::Scratch,
    watch,
};

#[path = "tls/calls.rs"]
mod calls;
#[path = "tls/held.rs"]
mod held;
#[path = "tls/read.rs"]
mod read;
#[path = "tls/source.rs"]
mod source;

/// An object of the library's.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Key {
    /// Its address. Of what is held back, one more for what arrives.
    pub ssl: u64,
    /// The process.
    pub tgid: u64,
}

/// What a thread is doing in the library; see [`Call::what`].
pub mod what {
    pub const NOTHING: u32 = 0;
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const READ_EX: u32 = 3;
    pub const WRITE_EX: u32 = 4;
    pub const HANDSHAKE: u32 = 5;
    /// A write whose bytes the process does not have.
    pub const SEND_FILE: u32 = 6;
}

/// A thread's call of the library, and then the reading of what it carried.
#[repr(C)]
pub struct Call {
    pub key: Key,
    /// The plaintext, in the process.
    pub buf: u64,
    /// Where the `_ex` calls leave how much they did.
    pub out: u64,
    /// Only to make a number of a pointer.
    pub sk: u64,
    /// Of the socket that sent during the call; 0 if none did.
    pub cookie: u64,
    /// See [`what`].
    pub what: u32,
    /// Position of the buffer's first byte in its direction.
    pub seq: u32,
    /// Sides on which there is something to read, as bits.
    pub sides: u32,
    /// The one that is read.
    pub side: u32,
    /// Of the socket.
    pub edge: u8,
    pub role: u8,
    /// 1 if it sent a record of a handshake, with which the plaintext begins.
    pub opening: u8,
    /// 1 if the last call was one of an object whose socket is not known.
    pub loose: u8,
    /// What the connection spoke before; 0 if that says nothing.
    pub protocol: u8,
    pub reserved: [u8; 3],
}

/// A socket that sent a handshake's record right after a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Claim {
    pub cookie: u64,
    pub edge: u8,
    pub role: u8,
    /// As in [`Call`].
    pub opening: u8,
    pub protocol: u8,
    pub reserved: [u8; 4],
}

/// The plaintext of one connection.
#[repr(C)]
pub struct Session {
    pub flows: [Flow; 2],
    /// Its cookie is 0 as long as the socket is not known.
    pub book: Book,
    /// By direction, see [`direction`]: where what is held back begins. There is something if that is not where the next byte will be.
    pub held: [u32; 2],
    /// By direction: position of the next byte.
    pub next: [u32; 2],
    pub claim: Claim,
}

/// An index of two, masked where the verifier sees it: the compiler is made to forget what it knows. Before 5.16 the verifier itself forgets the bounds of
/// what lies on the stack.
#[inline(always)]
pub fn either(index: usize) -> usize {
    forget(index as u32) as usize & 1
}

/// Places in the arrays of directions: 0 for what leaves, 1 for what arrives.
#[inline(always)]
pub fn direction(role: u8, side: usize) -> usize {
    (role as usize ^ side) & 1
}

/// By thread. The threads that are gone are found by their age.
#[map]
pub static TLS_CALLS: LruHashMap<u64, Call> = LruHashMap::with_max_entries(1 << 13, 0);

/// Most are freed by the library; those of processes that ended otherwise are found by their age.
#[map]
pub static TLS_SESSIONS: LruHashMap<Key, Session> = LruHashMap::with_max_entries(1 << 14, 0);

/// What cannot be read yet: because the socket or the protocol is not known.
#[map]
pub static TLS_HELD: LruHashMap<Key, Ring> = LruHashMap::with_max_entries(64, 0);

/// One element each, never written: what a new one begins as.
#[map]
pub static TLS_NO_CALL: Array<Call> = Array::with_max_entries(1, 0);
#[map]
pub static TLS_NO_SESSION: Array<Session> = Array::with_max_entries(1, 0);

/// Cookies of connections that are tied to an object and whose plaintext, if there was any, is not unknown.
#[map]
pub static TLS_READ: LruHashMap<u64, u32> = LruHashMap::with_max_entries(1 << 14, 0);

/// One element: where in a `struct sock` it says whether a system call has it; user space knows.
#[map]
pub static TLS_SOCK_OWNED: Array<u32> = Array::with_max_entries(1, 0);

/// The bytes that are being read on each CPU.
#[map]
pub static TLS_CHUNKS: PerCpuArray<Chunk> = PerCpuArray::with_max_entries(1, 0);

/// By `read::program`.
#[map]
pub static TLS_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(7, 0);

/// Segments that leave the sockets of connections that are not read: in place of `passive_egress` while the library is probed.
#[cgroup_skb(egress)]
pub fn tls_egress(ctx: SkBuffContext) -> i32 {
    leaves(&ctx);
    hook::read_on::<Passive>(&ctx, &maps::EGRESS_PROGRAMS, burst_passive)
}

/// Tells the call that this thread is in, if it is in one, which socket it is that sends.
#[inline(always)]
fn leaves(ctx: &SkBuffContext) {
    let skb: *mut __sk_buff = ctx.as_ptr().cast();
    let Some(sk) = conns::socket(skb) else {
        return;
    };
    let conn = conns::get(sk);
    if conn.is_null() {
        return;
    }
    // SAFETY: the context; a non-null value of the storage map, whose fields are reached one at a time.
    unsafe {
        let book = &raw mut (*conn).book;
        // One that a playbook calls TLS was never looked at, and is left alone.
        if (*book).protocol != protocol::TLS || (*book).looked | (*book).counted == 0 {
            return;
        }
        wait_no_longer(book);
        let Some(call) = TLS_CALLS.get_ptr_mut(bpf_get_current_task()) else {
            return;
        };
        let within = (*call).what != what::NOTHING;
        if if within { (*call).cookie == (*book).cookie } else { (*call).loose == 0 } {
            return;
        }
        let Some(offset) = TLS_SOCK_OWNED.get(0) else {
            return;
        };
        core::ptr::write_volatile(&raw mut (*call).sk, sk as u64);
        let place = core::ptr::read_volatile(&raw const (*call).sk) + *offset as u64;
        let mut owned = 0_u32;
        if bpf_probe_read_kernel((&raw mut owned).cast(), 4, place as *const _) != 0 || owned & 1 == 0 {
            return;
        }
        let mut kind = 0_u8;
        if bpf_skb_load_bytes(skb.cast(), Scratch::of(skb).payload(), (&raw mut kind).cast(), 1) != 0 {
            return;
        }
        const HANDSHAKE: u8 = 22;
        // MySQL begins on the wire and goes on within TLS, where its first words are not known again.
        let flow = (&raw const (*conn).flows).cast::<Flow>().add((*book).side(false));
        let before = if (*flow).protocol == protocol::MYSQL { protocol::MYSQL } else { protocol::ANY };
        let opening = (kind == HANDSHAKE) as u8;
        if !within {
            (*call).loose = 0;
            let key = (*call).key;
            if kind == HANDSHAKE
                && let Some(session) = session(&key)
            {
                (*session).claim =
                    Claim { cookie: (*book).cookie, edge: (*book).edge, role: (*book).role, opening, protocol: before, reserved: [0; 4] };
            }
            return;
        }
        (*call).opening = opening;
        (*call).protocol = before;
        (*call).edge = (*book).edge;
        (*call).role = (*book).role;
        (*call).cookie = (*book).cookie;
    }
}

/// The state of an object, made if there is none; none without memory.
#[inline(always)]
fn session(key: &Key) -> Option<*mut Session> {
    if let Some(session) = TLS_SESSIONS.get_ptr_mut(key) {
        return Some(session);
    }
    let none = TLS_NO_SESSION.get_ptr(0)?;
    // SAFETY: both lie in maps or on the stack.
    unsafe {
        bpf_map_update_elem((&raw const TLS_SESSIONS).cast_mut().cast(), core::ptr::from_ref(key).cast(), none.cast(), BPF_ANY as u64);
    }
    TLS_SESSIONS.get_ptr_mut(key)
}

/// Whether a connection that is recognised as TLS is counted as that only when it has turned out that its plaintext is not read.
///
/// # Safety
/// The pointer is into socket storage.
#[inline(always)]
pub unsafe fn counts_later(book: *mut Book) -> bool {
    let Some((_, flags)) = count::settings() else {
        return false;
    };
    let later = flags & Settings::READS_TLS != 0;
    if later {
        // SAFETY: the caller's.
        unsafe { (*book).looked = 1 };
    }
    later
}

/// Segments that leave before a connection of which no plaintext was read is counted as TLS.
const PATIENCE: u8 = 32;

#[inline(always)]
unsafe fn wait_no_longer(book: *mut Book) {
    // SAFETY: the caller's pointer is into socket storage.
    unsafe {
        if (*book).counted != 0 {
            return;
        }
        (*book).looked += 1;
        if (*book).looked > PATIENCE {
            (*book).looked = 1;
            if let Some((epoch, _)) = count::settings()
                && let Some(counters) = count::of_edge(epoch, (*book).edge)
            {
                settle(book, counters);
            }
        }
    }
}

/// Counts the connection as TLS if it still waits for that and its plaintext is not read.
///
/// # Safety
/// The pointers are into socket storage and the counters map.
#[inline(always)]
pub unsafe fn settle(book: *mut Book, counters: *mut EdgeCounters) {
    // SAFETY: the caller's.
    unsafe {
        if (*book).protocol != protocol::TLS || (*book).counted != 0 || (*book).looked == 0 {
            return;
        }
        if TLS_READ.get_ptr((*book).cookie).is_none() {
            watch::count_as(book, counters, protocol::TLS);
        }
    }
}
