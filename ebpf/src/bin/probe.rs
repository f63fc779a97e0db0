//! The probe's programs: those of each packet direction of a cgroup, and one for the life of its TCP sockets.
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
#[path = "../probe/detect.rs"]
mod detect;
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
#[path = "../probe/order.rs"]
mod order;
#[path = "../probe/packet.rs"]
mod packet;
#[path = "../probe/rings.rs"]
mod rings;
#[path = "../probe/sampling.rs"]
mod sampling;
#[path = "../probe/scratch.rs"]
mod scratch;
#[path = "../probe/tls.rs"]
mod tls;
#[path = "../probe/turn.rs"]
mod turn;
#[path = "../probe/watch.rs"]
mod watch;

use aya_ebpf::{
    bindings::__sk_buff,
    macros::{cgroup_skb, sock_ops},
    programs::{SkBuffContext, SockOpsContext},
};
use stormdrill_wire::{http1::Machine, http2::Http2, mysql::Mysql, passive::Passive, postgres::Postgres, redis::Redis};

/// The bursts of each protocol: functions that the verifier goes through on their own.
macro_rules! bursts {
    ($($name:ident: $machine:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[inline(never)]
            pub extern "C" fn $name(skb: *mut __sk_buff) -> u32 {
                job::burst::<$machine>(skb)
            }
        )*
    };
}

bursts! {
    burst_http1: Machine;
    burst_http2: Http2;
    burst_redis: Redis;
    burst_mysql: Mysql;
    burst_postgres: Postgres;
    burst_passive: Passive;
}

/// Waits until a connection's arrivals may be read; see `turn`.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn wait_turn(skb: *mut __sk_buff) -> u32 {
    turn::wait(skb, glance_turn)
}

/// A part of that wait.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn glance_turn(skb: *mut __sk_buff) -> u32 {
    turn::glance(skb)
}

/// Waits until a connection's state is there.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn wait_for_state(skb: *mut __sk_buff) -> u32 {
    turn::wait_for_state(skb, glance_at_state)
}

/// A part of that wait.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn glance_at_state(skb: *mut __sk_buff) -> u32 {
    turn::glance_at_state(skb)
}

/// Whether a record about the packet at hand is left out; see `sampling::Asked`.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn leave_out(skb: *mut __sk_buff, what: u32, index: u32, from: u32) -> u32 {
    sampling::of_packet(skb, sampling::Asked { what, index, from })
}

/// The parts of `order`.
macro_rules! order_parts {
    ($($name:ident: $part:path;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[inline(never)]
            pub extern "C" fn $name(skb: *mut __sk_buff) -> u32 {
                $part(skb)
            }
        )*
    };
}

order_parts! {
    order_keep: order::keep;
    order_pass_over: order::pass_over;
    order_choose: order::choose;
}

const ORDER: order::Parts = order::Parts { keep: order_keep, pass_over: order_pass_over, choose: order_choose };

/// Segments that reach a socket.
#[cgroup_skb(ingress)]
pub fn probe_ingress(ctx: SkBuffContext) -> i32 {
    hook::see(&ctx, true, &maps::INGRESS_PROGRAMS, burst_http1, wait_turn)
}

/// Segments that leave a socket.
#[cgroup_skb(egress)]
pub fn probe_egress(ctx: SkBuffContext) -> i32 {
    hook::see(&ctx, false, &maps::EGRESS_PROGRAMS, burst_http1, wait_turn)
}

/// The programs that the hooks call: for each direction one, since an array holds programs of one attach type only.
macro_rules! called {
    ($($in_name:ident, $out_name:ident: |$ctx:ident, $incoming:ident, $programs:ident| $body:expr;)*) => {
        $(
            #[cgroup_skb(ingress)]
            pub fn $in_name(ctx: SkBuffContext) -> i32 {
                let ($ctx, $incoming, $programs) = (&ctx, true, &maps::INGRESS_PROGRAMS);
                let _ = $incoming;
                $body
            }

            #[cgroup_skb(egress)]
            pub fn $out_name(ctx: SkBuffContext) -> i32 {
                let ($ctx, $incoming, $programs) = (&ctx, false, &maps::EGRESS_PROGRAMS);
                let _ = $incoming;
                $body
            }
        )*
    };
}

called! {
    http2_ingress, http2_egress: |ctx, incoming, programs| hook::read_on::<Http2>(ctx, programs, burst_http2);
    redis_ingress, redis_egress: |ctx, incoming, programs| hook::read_on::<Redis>(ctx, programs, burst_redis);
    mysql_ingress, mysql_egress: |ctx, incoming, programs| hook::read_on::<Mysql>(ctx, programs, burst_mysql);
    postgres_ingress, postgres_egress: |ctx, incoming, programs| hook::read_on::<Postgres>(ctx, programs, burst_postgres);
    passive_ingress, passive_egress: |ctx, incoming, programs| hook::read_on::<Passive>(ctx, programs, burst_passive);
    detect_ingress, detect_egress: |ctx, incoming, programs| detect::look(ctx, programs);
    order_ingress, order_egress: |ctx, incoming, programs| order::put_in_order(ctx, programs, &ORDER);
    adopt_ingress, adopt_egress: |ctx, incoming, programs| hook::adopt(ctx, incoming, programs, wait_for_state);
}

/// Segments with data that reach a listener. Called by `adopt_ingress` only.
#[cgroup_skb(ingress)]
pub fn early_ingress(ctx: SkBuffContext) -> i32 {
    hook::early(&ctx)
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
