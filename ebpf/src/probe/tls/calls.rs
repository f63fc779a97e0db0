//! The probes on the library: what a call is about when it begins, and what it did when it ends.

use aya_ebpf::{
    bindings::BPF_ANY,
    helpers::generated::{bpf_get_current_pid_tgid, bpf_get_current_task, bpf_map_update_elem, bpf_probe_read_user},
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use stormdrill_wire::{conn::Book, flow::Flow};

use super::{
    Call, Key, Session, TLS_CALLS, TLS_NO_CALL, TLS_PROGRAMS, TLS_READ, TLS_SESSIONS, direction, either, held, read::program, session, what,
};

/// A call of each kind begins.
macro_rules! begins {
    ($($name:ident: $what:ident;)*) => {
        $(
            #[uprobe]
            pub fn $name(ctx: ProbeContext) -> u32 {
                begin(&ctx, what::$what);
                0
            }
        )*
    };
}

begins! {
    tls_read: READ;
    tls_write: WRITE;
    tls_read_ex: READ_EX;
    tls_write_ex: WRITE_EX;
    tls_handshake: HANDSHAKE;
    tls_send_file: SEND_FILE;
}

/// A call that carries plaintext ends.
#[uretprobe]
pub fn tls_done(ctx: RetProbeContext) -> u32 {
    end(&ctx, false);
    0
}

/// A handshake's call ends. Not `tls_done`: there are libraries that make this call within the others.
#[uretprobe]
pub fn tls_shaken(ctx: RetProbeContext) -> u32 {
    end(&ctx, true);
    0
}

/// An object is freed.
#[uprobe]
pub fn tls_free(ctx: ProbeContext) -> u32 {
    if let Some(ssl) = ctx.arg::<u64>(0) {
        let key = Key { ssl, tgid: tgid() };
        let _ = TLS_SESSIONS.remove(key);
        held::free(&key, 0);
        held::free(&key, 1);
    }
    0
}

#[inline(always)]
fn tgid() -> u64 {
    // SAFETY: the helper takes nothing.
    unsafe { bpf_get_current_pid_tgid() >> 32 }
}

#[inline(always)]
fn begin(ctx: &ProbeContext, what: u32) {
    // SAFETY: the helper takes nothing.
    let task = unsafe { bpf_get_current_task() };
    let (Some(ssl), Some(buf), Some(out)) = (ctx.arg::<u64>(0), ctx.arg::<u64>(1), ctx.arg::<u64>(3)) else {
        return;
    };
    if TLS_CALLS.get_ptr(task).is_none() {
        let Some(none) = TLS_NO_CALL.get_ptr(0) else {
            return;
        };
        // SAFETY: both lie in maps or on the stack.
        unsafe {
            bpf_map_update_elem((&raw const TLS_CALLS).cast_mut().cast(), (&raw const task).cast(), none.cast(), BPF_ANY as u64);
        }
    }
    let Some(call) = TLS_CALLS.get_ptr_mut(task) else {
        return;
    };
    // SAFETY: a map value that only this thread uses.
    unsafe {
        let nested = what == what::HANDSHAKE && (*call).what != what::NOTHING && (*call).what != what::HANDSHAKE;
        if nested && (*call).key.ssl == ssl {
            return;
        }
        (*call).key = Key { ssl, tgid: tgid() };
        // Nothing can be read at 0: what has to be read there is missing, and the body of a message need not be.
        (*call).buf = if what == what::SEND_FILE { 0 } else { buf };
        (*call).out = out;
        (*call).cookie = 0;
        (*call).sides = 0;
        (*call).what = what;
    }
}

#[inline(always)]
fn end(ctx: &RetProbeContext, shaken: bool) {
    // SAFETY: the helper takes nothing.
    let task = unsafe { bpf_get_current_task() };
    let Some(call) = TLS_CALLS.get_ptr_mut(task) else {
        return;
    };
    // SAFETY: map values that only this thread uses; the array holds programs of this type only.
    unsafe {
        let what = (*call).what;
        if what == what::NOTHING || shaken != (what == what::HANDSHAKE) {
            return;
        }
        (*call).what = what::NOTHING;
        let amount = if shaken { 0 } else { amount(call, what, ctx.ret::<i32>()) };
        let key = (*call).key;
        if amount == 0 && (*call).cookie == 0 && TLS_SESSIONS.get_ptr(key).is_none() {
            (*call).loose = 1;
            return;
        }
        let Some(session) = session(&key) else {
            return;
        };
        let claim = (*session).claim;
        if (*call).cookie | (*session).book.cookie == 0 && claim.cookie != 0 {
            (*call).cookie = claim.cookie;
            (*call).edge = claim.edge;
            (*call).role = claim.role;
            (*call).opening = claim.opening;
            (*call).protocol = claim.protocol;
        }
        (*call).loose = ((*call).cookie | (*session).book.cookie == 0) as u8;
        if (*call).cookie != 0 && (*call).cookie != (*session).book.cookie {
            connect(call, session);
        }
        if amount > 0 {
            carried(call, session, what & 1, amount);
        }
        if (*session).book.cookie != 0 {
            (*call).sides |= (*session).flows[0].stored as u32 & 1 | ((*session).flows[1].stored as u32 & 1) << 1;
            if (*call).sides != 0 {
                TLS_PROGRAMS.tail_call(ctx, program::NEXT);
            }
        }
    }
}

/// How many bytes a call has carried.
#[inline(always)]
unsafe fn amount(call: *const Call, what: u32, answer: i32) -> u32 {
    if answer <= 0 {
        return 0;
    }
    if what == what::READ || what == what::WRITE || what == what::SEND_FILE {
        return answer as u32;
    }
    let mut amount = 0_u64;
    // SAFETY: the helper checks the address.
    let failed = unsafe { bpf_probe_read_user((&raw mut amount).cast(), 8, (*call).out as *const _) } != 0;
    if failed || amount > i32::MAX as u64 { 0 } else { amount as u32 }
}

/// The object's socket is known now.
#[inline(always)]
unsafe fn connect(call: *const Call, session: *mut Session) {
    // SAFETY: the caller's pointers are into maps.
    unsafe {
        let role = (*call).role;
        // It was another connection's before.
        if (*session).book.cookie != 0 {
            (*session).held = [0; 2];
            (*session).next = [0; 2];
        }
        let begins = (*call).opening != 0 && (*session).next[0] | (*session).next[1] == 0;
        let book = &raw mut (*session).book;
        *book = Book::new(role);
        (*book).cookie = (*call).cookie;
        (*book).edge = (*call).edge;
        let _ = TLS_READ.insert((*book).cookie, 1, 0);
        if begins {
            (*book).protocol = (*call).protocol;
        }
        let mut side = 0;
        while side < 2 {
            let flow = (&raw mut (*session).flows).cast::<Flow>().add(side);
            let direction = direction(role, side);
            let direction = either(direction);
            let (held, next) = ((*session).held[direction], (*session).next[direction]);
            *flow = Flow::new(held);
            (*flow).flags = if begins { 0 } else { Flow::LATE };
            (*flow).stored = (held != next) as u8;
            side += 1;
        }
    }
}

/// A call has carried plaintext; `direction` as in [`direction`].
#[inline(always)]
unsafe fn carried(call: *mut Call, session: *mut Session, direction: u32, amount: u32) {
    // SAFETY: the caller's pointers are into maps.
    unsafe {
        let direction = direction as usize;
        let from = (*session).next[either(direction)];
        let to = from.wrapping_add(amount);
        (*session).next[either(direction)] = to;
        (*call).seq = from;
        let known = (*session).book.cookie != 0;
        let side = either(self::direction((*session).book.role, direction));
        let flow = (&raw mut (*session).flows).cast::<Flow>().add(side);
        if known && (*flow).stored == 0 {
            (*call).sides |= 1 << side;
            (*session).held[either(direction)] = to;
            return;
        }
        if held::keep(call, direction as u32, (*session).held[either(direction)], from, to) {
            return;
        }
        held::free(&(*call).key, direction as u64);
        (*session).held[either(direction)] = to;
        if known {
            (*flow).stored = 0;
            (*flow).give_up(to);
        }
    }
}

const _: () =
    assert!(what::READ & 1 == 1 && what::READ_EX & 1 == 1 && what::WRITE & 1 == 0 && what::WRITE_EX & 1 == 0 && what::SEND_FILE & 1 == 0);
