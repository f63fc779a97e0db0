//! Connections that were open before the probe: no `sock_ops` call tells of them.
//!
//! Their role comes from user space, which lists the host's sockets; one that is not in the list stays unknown and is
//! counted, never guessed. Their end and their retransmissions are read off the packets.

use aya_ebpf::{
    bindings::{__sk_buff, bpf_sock},
    helpers::generated::bpf_get_socket_cookie,
};
use stormdrill_wire::{
    abi::{Addresses, MAX_NAMED_EDGES, Settings, close, health, kind, protocol, role},
    conn::{Book, Conn},
};

use crate::{
    classify, conns, count,
    events::{Sender, Subject},
    maps::FOUND,
    packet::{self, Segment},
    rings, tls, turn,
};

const SYN_RECV: u32 = 3;
const CLOSE: u32 = 7;
const LISTEN: u32 = 10;

/// What became of a socket without state.
pub enum Adoption {
    /// It has state now.
    Done,
    /// It is a listener, and its segment has data.
    Listener,
    /// Another CPU is making its state at this moment.
    Elsewhere,
    /// Nothing: its role may still become known.
    None,
}

/// Gives state to a connection that has none.
#[inline(always)]
pub fn adopt(skb: *mut __sk_buff, sk: *mut bpf_sock, segment: &Segment, incoming: bool, epoch: u32, flags: u32) -> Adoption {
    // SAFETY: a full socket; the helper takes the context; map pointers are checked before use.
    unsafe {
        if (*sk).state == LISTEN {
            return if segment.len > 0 && incoming { Adoption::Listener } else { Adoption::None };
        }
        // The kernel's own, from which it resets what it knows no socket for; or one that is done.
        if (*sk).state == CLOSE {
            return Adoption::None;
        }
        // A socket that has left the listener, and that `sock_ops` has not told of yet.
        if (*sk).state == SYN_RECV || !conns::get(sk).is_null() {
            return Adoption::Elsewhere;
        }
        let cookie = bpf_get_socket_cookie(skb.cast());
        let known = FOUND.get_ptr(cookie);
        if known.is_none() && flags & Settings::LISTED == 0 {
            return Adoption::None;
        }
        let role = if let Some(role) = known { *role as u8 } else { role::UNKNOWN };
        let addresses = packet::addresses(skb, segment, incoming);
        let conn = conns::get_or_create(sk);
        if conn.is_null() {
            count::health(health::STORAGE_FAILED);
            return Adoption::None;
        }
        // Another packet of the connection, on another CPU, may be as far.
        if !turn::take(conn) {
            return Adoption::Elsewhere;
        }
        if (*conn).book.cookie != 0 {
            turn::give_back(conn);
            return Adoption::Elsewhere;
        }
        let found = Conn::found(role::UNKNOWN);
        ((*conn).flows, (*conn).book) = (found.flows, found.book);
        (*conn).book.cookie = cookie;
        turn::give_back(conn);
        let book = &raw mut (*conn).book;
        if role == role::UNKNOWN {
            core::ptr::write_volatile(&raw mut (*book).life, Book::FOUND_OPEN | Book::ROLE_GIVEN_UP);
            if classify::may_be_named(&addresses) {
                count::health(health::UNKNOWN_ROLE);
            }
            return Adoption::Done;
        }
        let _ = FOUND.remove(cookie);
        let class = classify::class(role, &addresses);
        let edge = class.edge;
        (*book).edge = edge;
        (*book).protocol = class.protocol;
        // Last: others wait for them.
        core::ptr::write_volatile(&raw mut (*book).role, role);
        core::ptr::write_volatile(&raw mut (*book).life, Book::FOUND_OPEN);
        if count::wants_events(flags)
            && (edge as usize) < MAX_NAMED_EDGES
            && let Some(counters) = count::of_edge(epoch, edge)
        {
            let subject = Subject { kind: kind::OPENED, index: 0, status: 0, flags: 0 };
            Sender { epoch, counters }.connection(book, subject, &addresses);
        }
        Adoption::Done
    }
}

/// Books the end of a connection that `sock_ops` does not tell of: the first FIN or RST of either side, but not that of a client
/// that still waits for an answer.
///
/// # Safety
/// The pointer must be into socket storage.
#[inline(always)]
pub unsafe fn closed(book: *mut Book, sender: &Sender, flags: u32) {
    // SAFETY: the caller's pointer is into socket storage; `counters` into the counters map.
    unsafe {
        if (*book).life & Book::CLOSE_SENT != 0 {
            return;
        }
        let (seen_in, seen_out) = ((*book).seen_in, (*book).seen_out);
        let is_ingress = (*book).role == role::INGRESS;
        let (by_server, by_client) = if is_ingress { (seen_out, seen_in) } else { (seen_in, seen_out) };
        let waits = (*book).awaits() && (seen_in | seen_out) & Book::RST == 0 && by_server & Book::FIN == 0;
        if waits && (by_client & Book::FIN == 0 || (*book).life & Book::WAITS_NO_MORE != 0) {
            return;
        }
        // What was read of it as plaintext may still be on its way to the program.
        if (*book).protocol == protocol::TLS && (seen_in | seen_out) & Book::RST == 0 && seen_in & seen_out & Book::FIN == 0 {
            return;
        }
        let wants = count::wants_events(flags) && ((*book).edge as usize) < MAX_NAMED_EDGES;
        if waits {
            // Should no answer come, nothing else will tell when it was given up.
            (*book).life |= Book::WAITS_NO_MORE;
            if wants {
                sender.connection(book, Subject { kind: kind::ASKS_NO_MORE, index: 0, status: 0, flags: 0 }, &Addresses::NONE);
            }
            return;
        }
        (*book).life |= Book::CLOSE_SENT;
        tls::settle(book, sender.counters);
        // Where both have closed, the client was first, or this would have been told before.
        let client_first = seen_in & seen_out & Book::FIN != 0;
        let how = if seen_in & Book::RST != 0 {
            close::PEER_RESET
        } else if seen_out & Book::RST != 0 {
            close::LOCAL_RESET
        } else if (client_first && is_ingress) || (!client_first && seen_in & Book::FIN != 0) {
            close::PEER
        } else {
            close::LOCAL
        };
        count::add(&raw mut (*sender.counters).connections_closed, 1);
        if wants {
            let subject = Subject { kind: kind::CLOSED, index: 0, status: how, flags: 0 };
            sender.connection(book, subject, &Addresses::NONE);
        }
        rings::free((*book).cookie << 1);
        rings::free((*book).cookie << 1 | 1);
    }
}
