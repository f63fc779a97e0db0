//! The reading of what a call has carried: programs that call each other, as those of packets do.

use aya_ebpf::{helpers::generated::bpf_get_current_task, macros::uretprobe, programs::RetProbeContext};
use stormdrill_wire::{
    abi::{health, protocol},
    detect::{self, LOOKS, MORE, Opening, PASS},
    flow::{Flow, Stretch},
    http1::Machine,
    http2::Http2,
    mysql::Mysql,
    postgres::Postgres,
    read::{self, Payload as _},
    recogniser::Recogniser,
    redis::Redis,
};

use super::{
    Call, Session, TLS_CALLS, TLS_CHUNKS, TLS_PROGRAMS, TLS_READ, TLS_SESSIONS, direction, either, held,
    source::{Bytes, Origin, Watch},
};
use crate::{
    count,
    job::{self, BURSTS, Job},
};

/// Places in the program array; those of protocols are at their numbers.
pub mod program {
    pub const NEXT: u32 = 0;
    pub const DETECT: u32 = 6;
}

/// A function that the verifier goes through once.
type Called = extern "C" fn(u64) -> u32;

/// A program and a burst for each protocol.
macro_rules! readers {
    ($($name:ident, $burst:ident: $machine:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[inline(never)]
            pub extern "C" fn $burst(task: u64) -> u32 {
                burst::<$machine>(task)
            }

            #[uretprobe]
            pub fn $name(ctx: RetProbeContext) -> u32 {
                read_on::<$machine>(&ctx, $burst);
                0
            }
        )*
    };
}

readers! {
    tls_http1, burst_tls_http1: Machine;
    tls_http2, burst_tls_http2: Http2;
    tls_redis, burst_tls_redis: Redis;
    tls_mysql, burst_tls_mysql: Mysql;
    tls_postgres, burst_tls_postgres: Postgres;
}

/// Chooses what is read next: requests before responses.
#[uretprobe]
pub fn tls_next(ctx: RetProbeContext) -> u32 {
    next(&ctx);
    0
}

/// Looks at the beginning of a plaintext.
#[uretprobe]
pub fn tls_detect(ctx: RetProbeContext) -> u32 {
    look(&ctx);
    0
}

/// What is at hand.
struct Place {
    call: *mut Call,
    session: *mut Session,
    flow: *mut Flow,
    side: usize,
    direction: usize,
}

impl Place {
    #[inline(always)]
    fn of(task: u64) -> Option<Self> {
        let call = TLS_CALLS.get_ptr_mut(task)?;
        // SAFETY: map values that only this thread uses.
        unsafe {
            let key = (*call).key;
            let session = TLS_SESSIONS.get_ptr_mut(key)?;
            let side = (*call).side as usize & 1;
            let flow = (&raw mut (*session).flows).cast::<Flow>().add(side);
            Some(Self { call, session, flow, side, direction: direction((*session).book.role, side) })
        }
    }

    #[inline(always)]
    unsafe fn origin(&self) -> Origin {
        // SAFETY: the pointer is into a map.
        unsafe {
            Origin {
                key: (*self.call).key,
                direction: self.direction as u64,
                address: (*self.call).buf.wrapping_sub((*self.call).seq as u64),
            }
        }
    }

    #[inline(always)]
    unsafe fn bytes(&self, task: u64) -> Option<Bytes> {
        // SAFETY: as above. A task's address is unlike that of any other that may be under way on this CPU.
        unsafe { Some(Bytes { origin: self.origin(), chunk: TLS_CHUNKS.get_ptr_mut(0)?, token: task }) }
    }

    /// The side is done with.
    #[inline(always)]
    unsafe fn done(&self) {
        // SAFETY: as above.
        unsafe {
            (*self.call).sides &= !(1 << self.side);
            if (*self.flow).stored != 0 {
                (*self.flow).stored = 0;
                let direction = either(self.direction);
                (*self.session).held[direction] = (*self.session).next[direction];
                held::free(&(*self.call).key, self.direction as u64);
            }
        }
    }
}

#[inline(always)]
fn task() -> u64 {
    // SAFETY: the helper takes nothing.
    unsafe { bpf_get_current_task() }
}

#[inline(always)]
fn next(ctx: &RetProbeContext) {
    let Some(mut place) = Place::of(task()) else {
        return;
    };
    // SAFETY: map values that only this thread uses; the array holds programs of this type only.
    unsafe {
        let sides = (*place.call).sides;
        if sides & 3 == 0 {
            return;
        }
        let side = either((sides & 1 ^ 1) as usize);
        (*place.call).side = side as u32;
        place.side = side;
        place.flow = (&raw mut (*place.session).flows).cast::<Flow>().add(side);
        place.direction = direction((*place.session).book.role, side);
        let flow = place.flow;
        let end = (*place.session).next[either(place.direction)];
        let protocol = (*place.session).book.protocol;
        let mut program = if protocol == protocol::ANY { program::DETECT } else { protocol as u32 };
        if protocol >= protocol::TLS || (*flow).mark == end {
            (*flow).mark = end;
            place.done();
            program = program::NEXT;
        } else {
            (*flow).stretch.end = end;
            (*flow).stretch.source = if (*flow).stored != 0 { Stretch::RING } else { Stretch::SEGMENT };
        }
        TLS_PROGRAMS.tail_call(ctx, program);
    }
}

#[inline(always)]
fn look(ctx: &RetProbeContext) {
    let task = task();
    let Some(place) = Place::of(task) else {
        return;
    };
    // SAFETY: as above.
    unsafe {
        let Some(mut bytes) = place.bytes(task) else {
            return;
        };
        let (flow, book) = (place.flow, &raw mut (*place.session).book);
        let (mark, end, source) = ((*flow).mark, (*flow).stretch.end, (*flow).stretch.source);
        let opening =
            Opening { source, from: mark, total: end.wrapping_sub(mark), side: place.side, late: (*flow).flags & Flow::MIDDLE != 0 };
        let mut found = detect::look(&mut bytes, &opening);
        if !bytes.is_intact() {
            found = detect::look(&mut bytes, &opening);
        }
        if found == MORE {
            (*flow).keeps();
            (*place.call).sides &= !(1 << place.side);
            if source == Stretch::SEGMENT {
                if held::keep(place.call, place.direction as u32, mark, mark, end) {
                    (*flow).stored = 1;
                    (*place.session).held[either(place.direction)] = mark;
                } else {
                    (*flow).give_up(end);
                }
            }
        } else if found == PASS {
            (*flow).passes();
            if (*flow).mark == end {
                place.done();
            }
            (*book).looked = (*book).looked.wrapping_add(1);
            if (*book).looked >= LOOKS {
                (*book).protocol = protocol::UNKNOWN;
            }
        } else {
            (*book).protocol = found & 7;
        }
        if (*book).protocol >= protocol::TLS {
            // The connection is counted as what it is on the wire.
            let _ = TLS_READ.remove((*book).cookie);
        }
        TLS_PROGRAMS.tail_call(ctx, program::NEXT);
    }
}

#[inline(always)]
fn read_on<M: Recogniser>(ctx: &RetProbeContext, burst: Called) {
    let task = task();
    let Some(place) = Place::of(task) else {
        return;
    };
    // SAFETY: as above; `book` and `flow` lie apart.
    unsafe {
        let (flow, book) = (place.flow, &raw mut (*place.session).book);
        (*flow).adopt::<M>(&mut *book, place.side);
        read::begin::<M>(&mut *flow, &*book, place.side);
        let mut bursts = 0;
        while bursts < BURSTS {
            if burst(task) == 0 {
                break;
            }
            bursts += 1;
        }
        let (whole, _) = read::finish(&*flow);
        if whole {
            place.done();
        } else if bursts == BURSTS {
            count::lack(book, health::SEGMENTS_OVER_BUDGET);
            let end = (*flow).stretch.end;
            (*flow).give_up(end);
            place.done();
        }
        // Otherwise the connection goes on with another protocol.
        TLS_PROGRAMS.tail_call(ctx, program::NEXT);
    }
}

/// Reads on by a burst; 0 when there is nothing left to read. See `job::burst`.
#[inline(always)]
fn burst<M: Recogniser>(task: u64) -> u32 {
    let Some(place) = Place::of(task) else {
        return 0;
    };
    // SAFETY: as above.
    unsafe {
        let Some(bytes) = place.bytes(task) else {
            return 0;
        };
        let watch = Watch { origin: place.origin(), book: &raw mut (*place.session).book, flow: place.flow, side: place.side };
        job::on::<M, _, _>(&mut Job { bytes, watch })
    }
}
