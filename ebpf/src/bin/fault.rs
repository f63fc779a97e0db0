//! The kernel's half of faults: which packets are selected, which are dropped, and which responses get another status.
//!
//! None of these returns `TC_ACT_OK`: filters of others on the same hook run after them as before. A packet that cannot be read, or
//! whose lease has run out, is left alone.
#![no_std]
#![no_main]
// Atomic addition, see `connect::add`.
#![feature(asm_experimental_arch)]

#[path = "../fault/answers.rs"]
mod answers;
#[path = "../fault/chain.rs"]
mod chain;
#[path = "../fault/connect.rs"]
mod connect;
#[path = "../fault/maps.rs"]
mod maps;
#[path = "../fault/packet.rs"]
mod packet;
#[path = "../fault/rewrite.rs"]
mod rewrite;
#[path = "../fault/segment.rs"]
mod segment;
#[path = "../fault/select.rs"]
mod select;

use aya_ebpf::bindings::{TC_ACT_STOLEN, TC_ACT_UNSPEC};
use aya_ebpf::helpers::bpf_get_prandom_u32;
use aya_ebpf::macros::{cgroup_sock_addr, classifier};
use aya_ebpf::programs::{SockAddrContext, TcContext};

/// What a cls_bpf filter that is not direct-action returns for "mine": its action runs.
const MATCH: i32 = -1;
/// "Not mine": the next filter looks at the packet.
const NO_MATCH: i32 = 0;

/// Selects packets for the filter's action, a redirect to the ifb device that carries netem.
///
/// What the ifb sends on passes the egress hook a second time. It must match again, even after the lease: the kernel then takes off the mark
/// that spares it the action, and lets it go. Left on, the mark would hide the packet from the filters of the device that receives it.
#[classifier]
pub fn sd_select(ctx: TcContext) -> i32 {
    if select::comes_from_ifb(&ctx) {
        return MATCH;
    }
    match select::selected(&ctx) {
        Some(selected) if selected.lease_holds() => {
            selected.count_selected();
            MATCH
        }
        _ => NO_MATCH,
    }
}

/// Drops a share of the selected packets, each decided on its own.
///
/// Stolen, not shot: the sender's TCP must believe that the segment left, or it would not count its retransmission as one.
#[classifier]
pub fn sd_drop(ctx: TcContext) -> i32 {
    match select::selected(&ctx) {
        Some(selected) if selected.lease_holds() => {
            selected.count_selected();
            // SAFETY: a helper without arguments, allowed in every program type.
            let draw = unsafe { bpf_get_prandom_u32() };
            if u64::from(draw) < selected.rule.threshold {
                selected.count_hit();
                TC_ACT_STOLEN
            } else {
                TC_ACT_UNSPEC
            }
        }
        _ => TC_ACT_UNSPEC,
    }
}

/// Learns which connections are a cgroup's, from the packets that its sockets send the other way.
#[classifier]
pub fn sd_learn(ctx: TcContext) -> i32 {
    if let Some(read) = select::read(&ctx) {
        select::matches(&ctx, &read.packet, read.rule, select::Way::Back);
    }
    TC_ACT_UNSPEC
}

/// Writes another status over a share of the answers of the selected connections. Sees both of their directions.
#[classifier]
pub fn sd_http_status(ctx: TcContext) -> i32 {
    answers::see(&ctx);
    TC_ACT_UNSPEC
}

/// Goes on with a segment that `sd_http_status` has found: reads it as HTTP/1.
#[classifier]
pub fn sd_http_read(ctx: TcContext) -> i32 {
    answers::read(&ctx);
    TC_ACT_UNSPEC
}

/// Goes on with a segment of answers: reads it as HTTP/2.
#[classifier]
pub fn sd_http_frames(ctx: TcContext) -> i32 {
    answers::frames(&ctx);
    TC_ACT_UNSPEC
}

/// Goes on with a segment of answers that was read: writes what was decided.
#[classifier]
pub fn sd_http_write(ctx: TcContext) -> i32 {
    answers::write(&ctx);
    TC_ACT_UNSPEC
}

/// Refuses IPv4 connections.
#[cgroup_sock_addr(connect4)]
pub fn sd_refuse4(ctx: SockAddrContext) -> i32 {
    connect::judge(ctx.sock_addr, &connect::v4(ctx.sock_addr), true)
}

/// Refuses IPv6 connections.
#[cgroup_sock_addr(connect6)]
pub fn sd_refuse6(ctx: SockAddrContext) -> i32 {
    connect::judge(ctx.sock_addr, &connect::v6(ctx.sock_addr), true)
}

/// Refuses IPv4 connections on kernels before 5.18.
#[cgroup_sock_addr(connect4)]
pub fn sd_forbid4(ctx: SockAddrContext) -> i32 {
    connect::judge(ctx.sock_addr, &connect::v4(ctx.sock_addr), false)
}

/// Refuses IPv6 connections on kernels before 5.18.
#[cgroup_sock_addr(connect6)]
pub fn sd_forbid6(ctx: SockAddrContext) -> i32 {
    connect::judge(ctx.sock_addr, &connect::v6(ctx.sock_addr), false)
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
