//! The probe's programs: one for each packet direction of a cgroup, one for the life of its TCP sockets.
#![no_std]
#![no_main]
// Atomic addition, see `count::add`.
#![feature(asm_experimental_arch)]

#[path = "../probe/classify.rs"]
mod classify;
#[path = "../probe/conns.rs"]
mod conns;
#[path = "../probe/count.rs"]
mod count;
#[path = "../probe/early.rs"]
mod early;
#[path = "../probe/events.rs"]
mod events;
#[path = "../probe/found.rs"]
mod found;
#[path = "../probe/hook.rs"]
mod hook;
#[path = "../probe/job.rs"]
mod job;
#[path = "../probe/life.rs"]
mod life;
#[path = "../probe/maps.rs"]
mod maps;
#[path = "../probe/packet.rs"]
mod packet;
#[path = "../probe/watch.rs"]
mod watch;

use aya_ebpf::{
    macros::{cgroup_skb, sock_ops},
    programs::{SkBuffContext, SockOpsContext},
};

/// Segments that reach a socket.
#[cgroup_skb(ingress)]
pub fn probe_ingress(ctx: SkBuffContext) -> i32 {
    hook::see(&ctx, true, &maps::INGRESS_PROGRAMS)
}

/// Segments that leave a socket.
#[cgroup_skb(egress)]
pub fn probe_egress(ctx: SkBuffContext) -> i32 {
    hook::see(&ctx, false, &maps::EGRESS_PROGRAMS)
}

/// Segments that reach a socket of which nothing is known yet. Called by `probe_ingress` only.
#[cgroup_skb(ingress)]
pub fn adopt_ingress(ctx: SkBuffContext) -> i32 {
    hook::adopt(&ctx, true, &maps::INGRESS_PROGRAMS)
}

/// Segments with data that reach a listener. Called by `adopt_ingress` only.
#[cgroup_skb(ingress)]
pub fn early_ingress(ctx: SkBuffContext) -> i32 {
    hook::early(&ctx)
}

/// Segments that leave a socket of which nothing is known yet. Called by `probe_egress` only.
#[cgroup_skb(egress)]
pub fn adopt_egress(ctx: SkBuffContext) -> i32 {
    hook::adopt(&ctx, false, &maps::EGRESS_PROGRAMS)
}

/// What TCP tells of its sockets.
#[sock_ops]
pub fn probe_life(ctx: SockOpsContext) -> u32 {
    life::hear(ctx.ops);
    1
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: nothing here can panic; the verifier would refuse the program otherwise.
    unsafe { core::hint::unreachable_unchecked() }
}

/// Most helpers are for GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
