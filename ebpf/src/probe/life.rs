//! The life of connections as `sock_ops` tells it: roles, failed connects, retransmissions, ends.

use core::{arch::asm, mem::offset_of};

use aya_ebpf::{
    bindings::{bpf_sock, bpf_sock_ops},
    helpers::{bpf_sock_ops_cb_flags_set, bpf_tcp_sock, generated::bpf_get_socket_cookie},
};
use stormdrill_wire::{
    abi::{Addresses, EdgeCounters, MAX_NAMED_EDGES, close, failure, health, kind, protocol, role},
    conn::{Book, Conn, side},
};

use crate::{
    classify, conns, count, early,
    events::{Sender, Subject},
    rings, tls,
};

const CONNECT: u32 = 3;
const ACTIVE_ESTABLISHED: u32 = 4;
const PASSIVE_ESTABLISHED: u32 = 5;
const RETRANSMIT: u32 = 9;
const STATE: u32 = 10;

/// `BPF_SOCK_OPS_RETRANS_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG`
const CALLBACK_FLAGS: i32 = 2 | 4;

const SYN_SENT: u32 = 2;
const FIN_WAIT1: u32 = 4;
const CLOSE: u32 = 7;
const CLOSE_WAIT: u32 = 8;

/// One call of a TCP socket.
#[inline(always)]
pub fn hear(ops: *mut bpf_sock_ops) {
    // SAFETY: a valid context; the socket is null-checked.
    unsafe {
        let op = (*ops).op;
        let sk = (*ops).__bindgen_anon_2.sk;
        if sk.is_null() {
            return;
        }
        match op {
            CONNECT => begin(ops, sk, role::DOWNSTREAM),
            ACTIVE_ESTABLISHED => established(ops, sk, role::DOWNSTREAM),
            PASSIVE_ESTABLISHED => established(ops, sk, role::INGRESS),
            RETRANSMIT => retransmitted(ops, sk),
            STATE => changed(ops, sk),
            _ => {}
        }
    }
}

/// Makes the state of a new connection.
#[inline(always)]
unsafe fn begin(ops: *mut bpf_sock_ops, sk: *mut bpf_sock, role: u8) {
    let conn = conns::get_or_create(sk);
    if conn.is_null() {
        count::health(health::STORAGE_FAILED);
        return;
    }
    // SAFETY: `conn` is non-null; the others are the caller's.
    unsafe {
        let addresses = addresses(ops);
        let fresh = Conn::fresh(role, 0, 0);
        ((*conn).flows, (*conn).book) = (fresh.flows, fresh.book);
        (*conn).flows[side::REQUEST].begun = 0;
        (*conn).flows[side::RESPONSE].begun = 0;
        (*conn).book.cookie = bpf_get_socket_cookie(ops.cast());
        let class = classify::class(role, &addresses);
        (*conn).book.edge = class.edge;
        (*conn).book.protocol = class.protocol;
        if bpf_sock_ops_cb_flags_set(ops, CALLBACK_FLAGS) == 0 {
            (*conn).book.life = Book::CALLBACKS;
        }
    }
}

#[inline(always)]
unsafe fn established(ops: *mut bpf_sock_ops, sk: *mut bpf_sock, role: u8) {
    // SAFETY: as the caller's.
    unsafe {
        if role == role::INGRESS || conns::get(sk).is_null() {
            begin(ops, sk, role);
        }
        let conn = conns::get(sk);
        if conn.is_null() {
            return;
        }
        // Where the streams begin: a first segment that overtakes another must not be taken for the beginning.
        let (incoming, outgoing) = if role == role::INGRESS {
            (&raw mut (*conn).flows[side::REQUEST], &raw mut (*conn).flows[side::RESPONSE])
        } else {
            (&raw mut (*conn).flows[side::RESPONSE], &raw mut (*conn).flows[side::REQUEST])
        };
        if (*incoming).begun == 0 {
            (*incoming).begun = 1;
            (*incoming).mark = (*ops).rcv_nxt;
        }
        // Data may have been sent with the SYN already.
        if (*outgoing).begun == 0 {
            (*outgoing).begun = 1;
            (*outgoing).mark = (*ops).snd_nxt;
        }
        let book = &raw mut (*conn).book;
        if let Some((sender, events)) = sender(book) {
            count::add(&raw mut (*sender.counters).connections_opened, 1);
            if events {
                let subject = Subject { kind: kind::OPENED, index: 0, status: 0, flags: 0 };
                sender.connection(book, subject, &addresses(ops));
            }
        }
        if role == role::INGRESS {
            early::give(conn, &addresses(ops), (*ops).rcv_nxt);
        }
        // Last: from here on the socket's packets are looked at on any CPU.
        let life = (*book).life | Book::ESTABLISHED;
        core::ptr::write_volatile(&raw mut (*book).life, life);
    }
}

#[inline(always)]
unsafe fn retransmitted(ops: *mut bpf_sock_ops, sk: *mut bpf_sock) {
    // SAFETY: as the caller's.
    unsafe {
        let (segments, error) = ((*ops).__bindgen_anon_1.args[1], (*ops).__bindgen_anon_1.args[2]);
        let conn = conns::get(sk);
        if conn.is_null() || error != 0 || (*conn).book.life & Book::CALLBACKS == 0 {
            return;
        }
        if let Some((sender, _)) = sender(&raw mut (*conn).book) {
            count::add(&raw mut (*sender.counters).retransmits, segments as u64);
        }
    }
}

#[inline(always)]
unsafe fn changed(ops: *mut bpf_sock_ops, sk: *mut bpf_sock) {
    // SAFETY: as the caller's.
    unsafe {
        let (old, new) = ((*ops).__bindgen_anon_1.args[0], (*ops).__bindgen_anon_1.args[1]);
        if new != CLOSE && new != FIN_WAIT1 && new != CLOSE_WAIT {
            return;
        }
        let conn = conns::get(sk);
        // A connection that was open before may have calls on that another program asked for: its end is read off the packets.
        if conn.is_null() || (*conn).book.life & Book::CALLBACKS == 0 {
            return;
        }
        let book = &raw mut (*conn).book;
        let Some((sender, events)) = sender(book) else {
            return;
        };
        if new == CLOSE && (*book).life & Book::ESTABLISHED == 0 {
            if old == SYN_SENT {
                connect_failed(ops, sk, book, &sender, events);
            }
            return;
        }
        if new == FIN_WAIT1 {
            (*book).life |= Book::LOCAL_FIRST;
        } else if new == CLOSE_WAIT {
            (*book).life |= Book::PEER_FIRST;
        }
        // A requester that closes with no question open is done at once. One that has asked may still read the answer, and a server
        // may have its answer in the send queue: their ends count when the connection is gone.
        let by_requester = ((*book).role == role::DOWNSTREAM) == (new == FIN_WAIT1);
        // What was read of it as plaintext may still be on its way to the program.
        let encrypted = (*book).protocol == protocol::TLS;
        let final_word = new == CLOSE || !encrypted && if by_requester { !(*book).awaits() } else { new == CLOSE_WAIT };
        if final_word && (*book).life & Book::CLOSE_SENT == 0 {
            (*book).life |= Book::CLOSE_SENT;
            if events {
                let subject = Subject { kind: kind::CLOSED, index: 0, status: how(book), flags: 0 };
                sender.connection(book, subject, &Addresses::NONE);
            }
        }
        if new == CLOSE {
            tls::settle(book, sender.counters);
            count::add(&raw mut (*sender.counters).connections_closed, 1);
            rings::free((*book).cookie << 1);
            rings::free((*book).cookie << 1 | 1);
        }
    }
}

#[inline(always)]
unsafe fn how(book: *const Book) -> u16 {
    // SAFETY: the caller's pointer is into socket storage.
    unsafe {
        let first = (*book).life & (Book::LOCAL_FIRST | Book::PEER_FIRST);
        // A client that has ended its side and then resets what it is sent was gone, and not waiting for its answer.
        if (*book).role == role::INGRESS && first & Book::PEER_FIRST != 0 && (*book).seen_in & Book::RST != 0 {
            close::PEER_RESET
        } else if first & Book::LOCAL_FIRST != 0 {
            close::LOCAL
        } else if first & Book::PEER_FIRST != 0 {
            close::PEER
        } else if (*book).seen_in & Book::RST != 0 {
            close::PEER_RESET
        } else {
            close::LOCAL_RESET
        }
    }
}

#[inline(always)]
unsafe fn connect_failed(ops: *mut bpf_sock_ops, sk: *mut bpf_sock, book: *mut Book, sender: &Sender, events: bool) {
    // SAFETY: as the caller's.
    unsafe {
        count::add(&raw mut (*sender.counters).connect_failures, 1);
        if !events {
            return;
        }
        let status = if (*book).seen_in & Book::RST != 0 {
            failure::REFUSED
        } else {
            let tcp = bpf_tcp_sock(sk);
            if !tcp.is_null() && (*tcp).icsk_retransmits > 0 { failure::TIMED_OUT } else { failure::OTHER }
        };
        let subject = Subject { kind: kind::CONNECT_FAILED, index: 0, status, flags: 0 };
        sender.connection(book, subject, &addresses(ops));
    }
}

#[inline(always)]
unsafe fn sender(book: *mut Book) -> Option<(Sender, bool)> {
    let (epoch, flags) = count::settings()?;
    // SAFETY: the caller's pointer is into socket storage.
    let edge = unsafe { (*book).edge };
    let counters: *mut EdgeCounters = count::of_edge(epoch, edge)?;
    Some((Sender { epoch, counters }, count::wants_events(flags) && (edge as usize) < MAX_NAMED_EDGES))
}

/// Both ends; IPv4 as IPv4-mapped.
#[inline(always)]
unsafe fn addresses(ops: *mut bpf_sock_ops) -> Addresses {
    const AF_INET: u32 = 2;
    const LOCAL_IP4: usize = offset_of!(bpf_sock_ops, local_ip4);
    const REMOTE_IP4: usize = offset_of!(bpf_sock_ops, remote_ip4);
    const LOCAL_IP6: usize = offset_of!(bpf_sock_ops, local_ip6);
    const REMOTE_IP6: usize = offset_of!(bpf_sock_ops, remote_ip6);
    // SAFETY: a valid context.
    unsafe {
        let mut addresses = Addresses::NONE;
        if (*ops).family == AF_INET {
            addresses.local = [0, 0, 0xffff_u32.to_be(), word::<LOCAL_IP4>(ops)];
            addresses.remote = [0, 0, 0xffff_u32.to_be(), word::<REMOTE_IP4>(ops)];
        } else {
            addresses.local =
                [word::<LOCAL_IP6>(ops), word::<{ LOCAL_IP6 + 4 }>(ops), word::<{ LOCAL_IP6 + 8 }>(ops), word::<{ LOCAL_IP6 + 12 }>(ops)];
            addresses.remote = [
                word::<REMOTE_IP6>(ops),
                word::<{ REMOTE_IP6 + 4 }>(ops),
                word::<{ REMOTE_IP6 + 8 }>(ops),
                word::<{ REMOTE_IP6 + 12 }>(ops),
            ];
        }
        addresses.local_port = (*ops).local_port as u16;
        addresses.remote_port = u32::from_be((*ops).remote_port) as u16;
        addresses
    }
}

/// A word of the context. As an instruction of its own: the compiler would merge the reads of two branches into one at a
/// computed address, which the kernel does not allow in a context.
#[inline(always)]
unsafe fn word<const OFFSET: usize>(ops: *mut bpf_sock_ops) -> u32 {
    let word: u64;
    // SAFETY: the caller's context, at the offset of one of its fields.
    unsafe {
        asm!("{0} = *(u32 *)({1} + {2})", out(reg) word, in(reg) ops, const OFFSET, options(readonly, nostack, preserves_flags));
    }
    word as u32
}
