//! Which window an attempt belongs to, and when a window is final.

use std::collections::BTreeMap;

use stormdrill_core::edge::Protocol;
use stormdrill_core::event::{Close, ConnectFailure, HeadPiece, ProbeEvent, ProbeEventKind};
use stormdrill_core::track::TrackConfig;
use stormdrill_core::window::{Failure, PhaseName};

use crate::scene::{MS, STORE, Scene, WEB, closing, event, failures, get, request, statuses};

#[test]
fn an_attempt_belongs_to_the_window_in_which_it_started() {
    let mut scene = Scene::on(STORE);
    scene.get(9_999, 1, 0, "/").answer(10_500, 1, 0, 503).get(10_600, 1, 1, "/").answer(10_700, 1, 1, 200);
    scene.end_window(0);
    scene.end_window(1);
    let windows = scene.tracker.flush(20_000 * MS);
    let (first, second) = (&windows[0].edges[1], &windows[1].edges[1]);
    assert_eq!((first.attempts, statuses(first), first.retries.total()), (1, vec![("503", 1)], 0));
    assert_eq!(first.latency_ns, [501 * MS]);
    assert_eq!((second.attempts, statuses(second), second.retries.matched), (1, vec![("200", 1)], 1));
}

#[test]
fn the_kernels_epoch_decides_not_the_clock() {
    // The epoch was advanced a moment before this request passed, the window's end was read a moment after.
    let mut late = request(STORE, 9_999, 1, 0, &get("/", ""));
    late.epoch = 1;
    let mut scene = Scene::on(STORE);
    scene.tell(late);
    scene.end_window(0);
    scene.end_window(1);
    let windows = scene.tracker.flush(20_000 * MS);
    assert_eq!(windows.iter().map(|window| window.edges[1].attempts).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_window_carries_the_kernels_counts() {
    let mut scene = Scene::on(STORE);
    let mut close = closing(0);
    close.phase = PhaseName::Fault;
    close.events_lost = 3;
    scene.tracker.close_window(close);
    let window = scene.tracker.flush(0).pop().unwrap();
    assert_eq!((window.epoch, window.phase, window.events_lost), (0, PhaseName::Fault, 3));
    assert_eq!((window.start_ns, window.end_ns), (0, 10_000 * MS));
    assert_eq!(window.edges[1].counts.requests, 7);
    assert_eq!(window.edges[1].kernel_status, BTreeMap::from([(200, 7)]));
    assert_eq!(window.edges[0].counts.requests, 0);
}

#[test]
fn counts_that_are_missing_are_zero() {
    let mut scene = Scene::on(STORE);
    let mut close = closing(0);
    close.counts.clear();
    close.status.clear();
    scene.tracker.close_window(close);
    let window = scene.tracker.flush(0).pop().unwrap();
    assert_eq!(window.edges.len(), 2);
    assert!(window.edges.iter().all(|edge| edge.counts.requests == 0 && edge.kernel_status.is_empty()));
}

#[test]
fn a_window_is_final_once_all_of_its_attempts_have_an_outcome() {
    let mut scene = Scene::on(STORE);
    scene.get(9_000, 1, 0, "/");
    scene.end_window(0);
    assert!(!scene.tracker.is_idle());
    scene.get(10_100, 2, 0, "/other");
    assert!(scene.tracker.finalised(10_200 * MS).is_empty(), "an attempt is open");
    scene.answer(10_300, 1, 0, 200).get(10_400, 2, 1, "/other");
    let windows = scene.tracker.finalised(10_400 * MS);
    assert_eq!(windows.len(), 1);
    assert_eq!((statuses(&windows[0].edges[1]), windows[0].edges[1].pending), (vec![("200", 1)], 0));
    assert!(scene.tracker.is_idle());
    assert!(scene.tracker.finalised(60_000 * MS).is_empty(), "each window comes once");
}

#[test]
fn a_window_is_not_final_before_events_of_its_last_moments_were_dealt_with() {
    let mut scene = Scene::on(STORE);
    scene.end_window(0);
    scene.get(10_060, 1, 0, "/");
    assert!(scene.tracker.finalised(10_060 * MS).is_empty());
    scene.get(9_999, 2, 0, "/").answer(10_001, 2, 0, 200).get(10_100, 1, 1, "/");
    assert_eq!(scene.tracker.finalised(10_100 * MS)[0].edges[1].attempts, 1);
}

#[test]
fn a_window_without_any_events_becomes_final_by_the_clock() {
    let mut scene = Scene::on(STORE);
    scene.end_window(0);
    assert!(scene.tracker.finalised(10_000 * MS).is_empty());
    assert_eq!(scene.tracker.finalised(10_600 * MS).len(), 1);
}

#[test]
fn windows_become_final_in_order() {
    let mut scene = Scene::on(STORE);
    scene.get(9_000, 1, 0, "/");
    scene.end_window(0);
    scene.end_window(1);
    assert!(scene.tracker.finalised(14_999 * MS).is_empty(), "the second has no open attempt, and waits");
    let epochs: Vec<_> = scene.tracker.finalised(25_000 * MS).iter().map(|window| window.epoch).collect();
    assert_eq!(epochs, [0, 1]);
}

#[test]
fn a_window_can_be_had_ahead_of_attempts_on_edges_that_are_not_asked_for() {
    let (web, store) = ([true, false], [false, true]);
    let mut scene = Scene::on(STORE);
    scene.get(9_000, 1, 0, "/hangs");
    scene.edge = WEB;
    scene.get(9_100, 2, 0, "/").answer(9_200, 2, 0, 503);
    scene.end_window(0);
    let ahead = |scene: &mut Scene, ms: u64, index| {
        scene.get(ms, 3, index, "/later");
        assert!(scene.tracker.finalised(ms * MS).is_empty(), "{ms}");
        scene.tracker.ahead(0, &web)
    };
    assert_eq!(ahead(&mut scene, 10_040, 0), [], "events of its last moments may come yet");
    let windows = ahead(&mut scene, 10_200, 1);
    assert_eq!(windows.iter().map(|window| window.epoch).collect::<Vec<_>>(), [0]);
    assert_eq!(failures(&windows[0].edges[0]), [(Failure::Status, 1)]);
    let store_edge = &windows[0].edges[1];
    assert_eq!((store_edge.attempts, store_edge.counts.requests), (0, 7), "of others the counts");
    assert_eq!(scene.tracker.ahead(0, &store), [], "its attempt is open");
    assert_eq!(scene.tracker.ahead(0, &[false, false]).len(), 1, "counts wait for nobody");
    assert_eq!(scene.tracker.ahead(1, &web), [], "it has been had");
    // What is given in the end is the same.
    let last = scene.tracker.flush(30_000 * MS);
    assert_eq!((last[0].epoch, &last[0].edges[0]), (0, &windows[0].edges[0]));
}

#[test]
fn an_attempt_that_is_open_at_the_horizon_hangs() {
    let mut scene = Scene::on(STORE);
    scene.get(1_000, 1, 0, "/").get(9_999, 2, 0, "/");
    scene.end_window(0);
    assert!(scene.tracker.finalised(15_499 * MS).is_empty(), "an answer may be on its way to us");
    let windows = scene.tracker.finalised(15_500 * MS);
    let edge = &windows[0].edges[1];
    assert_eq!((failures(edge), edge.pending), (vec![(Failure::Hang, 2)], 0));
    assert_eq!(edge.failure_latency_ns.iter().max(), Some(&(14_000 * MS)));
    assert_eq!((edge.waited_ns.len(), edge.waited_ns.iter().max()), (2, Some(&(14_000 * MS))));
    scene.answer(16_000, 1, 0, 200).get(17_000, 3, 0, "/");
    scene.tracker.finalised(17_000 * MS);
    assert_eq!(scene.tracker.stats().misfits.outcomes, 1, "too late for its window, and counted");
}

#[test]
fn an_answer_after_the_horizon_is_too_late_however_late_the_window_is_asked_for() {
    for (ms, answered) in [(14_999, 1), (15_000, 0), (15_001, 0)] {
        let mut scene = Scene::on(STORE);
        scene.get(9_000, 1, 0, "/");
        scene.end_window(0);
        scene.answer(ms, 1, 0, 200).get(30_000, 2, 0, "/");
        let windows = scene.tracker.finalised(40_000 * MS);
        assert_eq!(windows[0].edges[1].status.values().sum::<u64>(), answered, "{ms}");
    }
}

#[test]
fn what_its_sender_gave_up_and_nobody_answered_ended_when_it_was_given_up() {
    let mut scene = Scene::on(STORE);
    scene.get(1_000, 1, 0, "/").get(1_000, 2, 0, "/");
    for conn in [1, 2] {
        scene.tell(event(STORE, 2_000, conn, ProbeEventKind::AsksNoMore));
    }
    // The second only asks no more, and has its answer.
    scene.answer(3_000, 2, 0, 200).end_window(0);
    let windows = scene.tracker.finalised(40_000 * MS);
    let edge = &windows[0].edges[1];
    assert_eq!((failures(edge), statuses(edge), edge.pending), (vec![(Failure::ClientAbort, 1)], vec![("200", 1)], 0));
    assert_eq!((edge.failure_latency_ns.iter().max(), edge.waited_ns.len()), (Some(&(1_000 * MS)), 0));
}

#[test]
fn an_attempt_that_is_open_for_less_than_a_hang_is_pending() {
    let mut scene = Scene::with(STORE, TrackConfig { hang_after_ns: 60_000 * MS, ..TrackConfig::default() });
    scene.get(1_000, 1, 0, "/");
    scene.end_window(0);
    let windows = scene.tracker.finalised(20_000 * MS);
    assert_eq!((failures(&windows[0].edges[1]), windows[0].edges[1].pending), (vec![], 1));
}

#[test]
fn a_flush_ends_every_window_at_once() {
    let mut scene = Scene::on(STORE);
    scene.get(1_000, 1, 0, "/").get(9_000, 2, 0, "/").answer(9_001, 2, 0, 200);
    scene.end_window(0);
    let windows = scene.tracker.flush(10_000 * MS);
    let edge = &windows[0].edges[1];
    assert_eq!((edge.attempts, failures(edge), edge.pending), (2, vec![(Failure::Hang, 1)], 0));
    assert!(scene.tracker.is_idle());
}

#[test]
fn attempts_between_windows_belong_to_none() {
    let mut scene = Scene::on(STORE);
    scene.get(1_000, 1, 0, "/").answer(1_001, 1, 0, 503).get(11_000, 1, 1, "/").answer(11_001, 1, 1, 200);
    let window = scene.window(1);
    assert_eq!(window.edges[1].attempts, 1);
    assert_eq!(scene.tracker.stats().misfits.attempts, 1);
}

#[test]
fn an_attempt_that_comes_after_its_window_was_final_is_counted_as_such() {
    let mut scene = Scene::on(STORE);
    scene.window(0);
    scene.get(1, 1, 0, "/").answer(2, 1, 0, 200);
    assert!(scene.tracker.flush(0).is_empty());
    let misfits = scene.tracker.stats().misfits;
    assert_eq!((misfits.attempts, misfits.outcomes), (1, 1));
}

#[test]
fn failed_connects_are_counted_by_reason() {
    let mut scene = Scene::on(STORE);
    for (ms, reason) in [(1, ConnectFailure::Refused), (2, ConnectFailure::Refused), (3, ConnectFailure::TimedOut)] {
        let peer = "10.0.0.2:80".parse().unwrap();
        scene.tell(event(STORE, ms, ms, ProbeEventKind::ConnectFailed { peer, reason }));
    }
    let edge = scene.result();
    let expected = BTreeMap::from([(ConnectFailure::Refused, 2), (ConnectFailure::TimedOut, 1)]);
    assert_eq!(edge.connect_failures, expected);
    assert_eq!(scene.tracker.open_connections(STORE), 0);
}

#[test]
fn logins_that_are_answered_with_an_error_are_failed_connects_with_a_status_and_no_attempts() {
    let mut scene = Scene::on(STORE);
    let error = b"\x17\0\0\0\xff\x10\x04Too many connections";
    let mut tell = |ms, conn, offset: usize, bytes: &[u8], complete| {
        let piece = HeadPiece { offset: u32::try_from(offset).unwrap(), bytes: bytes.to_vec(), complete, truncated: false };
        let kind = ProbeEventKind::TurnedAway { piece };
        scene.tell(ProbeEvent { protocol: Some(Protocol::Mysql), ..event(STORE, ms, conn, kind) });
    };
    tell(1, 1, 0, error, true);
    // Cut in two, after the end of another message.
    tell(2, 2, 0, b"\x4a", false);
    tell(3, 2, 0, &error[..6], false);
    tell(4, 2, 6, &error[6..], true);
    // Of which nothing is known.
    tell(5, 3, 30, b"connections", true);
    let edge = scene.result();
    assert_eq!(edge.connect_failures, BTreeMap::from([(ConnectFailure::TurnedAway, 3)]));
    assert_eq!(edge.turned_away, BTreeMap::from([("err:1040".to_owned(), 2), ("err:other".to_owned(), 1)]));
    assert_eq!(edge.status, edge.turned_away);
    assert_eq!((edge.attempts, edge.pending, failures(&edge)), (0, 0, vec![]));
}

#[test]
fn each_edge_has_its_own_book() {
    let mut scene = Scene::on(STORE);
    scene.tell(request(WEB, 1, 5, 0, &get("/", ""))).get(2, 1, 0, "/").close(3, 1, Close::PeerReset);
    let window = scene.window(0);
    assert_eq!(failures(&window.edges[1]), [(Failure::Reset, 1)]);
    assert_eq!(failures(&window.edges[0]), [(Failure::Hang, 1)]);
}

#[test]
fn what_begins_while_nothing_is_known_of_before_is_followed_and_not_counted() {
    let mut scene = Scene::on(STORE);
    // What failed before its turn was not told. Nobody knows that the first attempt here repeats it.
    scene.tracker.warm_up(1_000 * MS);
    scene.get(1_100, 1, 0, "/").answer(1_200, 1, 0, 503);
    // Of one that begins, and fails, later, the retry is known. So is the retry of one that was followed.
    scene.get(2_990, 2, 0, "/other").answer(2_995, 2, 0, 503).get(3_010, 2, 1, "/other").answer(3_020, 2, 1, 200);
    scene.get(3_100, 1, 1, "/").answer(3_110, 1, 1, 200);
    // Without an answer to the end, one that is not counted does not hang either.
    scene.get(1_500, 3, 0, "/slow");
    let edge = scene.result();
    assert_eq!((edge.attempts, statuses(&edge), edge.retries.matched), (2, vec![("200", 2)], 2));
    assert_eq!((failures(&edge), edge.pending), (vec![], 0));
}
