//! Faults by netem beside other people's configuration, and killed at any moment: on kernels that have the queueing disciplines that others use.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;
mod safety;

use std::path::Path;
use std::time::{Duration, Instant};

use lab::{Habit, amount, apply, arriving, edge, has_no_journal, hold, in_namespace, ping, run, wait_until};
use safety::probe::Probe;
use safety::{Draws, LEASE, Scene, Tree, assert_same, rounds};
use stormdrill::fault::clean::{Force, clean};
use stormdrill::fault::plane::Plane;
use stormdrill_core::edge::{EdgeSpec, Role};
use stormdrill_core::fault::{Backend, Direction, Distribution, FaultKind};

fn peer_edge(port: Option<u16>) -> EdgeSpec {
    edge(Role::Downstream, Some("10.9.0.2"), port)
}

fn delay(milliseconds: u64) -> FaultKind {
    FaultKind::Delay { time: Duration::from_millis(milliseconds), jitter: Duration::ZERO, distribution: Distribution::Uniform }
}

#[test]
fn htb_fq_fq_codel_mq_netem_and_filters_of_others_stay_byte_for_byte_while_a_fault_works_beside_them() {
    in_namespace(|| {
        let scene = Scene::new();
        let state = tempfile::tempdir().unwrap();
        let possible = Tree::possible();
        for needed in [Tree::Htb, Tree::Fq, Tree::Mq, Tree::MqOfFq, Tree::Netem, Tree::Clsact, Tree::HtbAndClsact] {
            assert!(possible.contains(&needed), "{needed:?} should be possible here, as {possible:?}");
        }
        for tree in
            possible.into_iter().filter(|tree| amount(true, !matches!(tree, Tree::Default | Tree::Fq | Tree::Mq | Tree::HtbAndClsact)))
        {
            assert!(tree.plant());
            let before = scene.dump();
            let plain = ping("10.9.0.2");
            let fault = apply(state.path(), delay(100), Direction::Both, peer_edge(None));
            assert_eq!(fault.backend(), Backend::Netem);
            let mut fault = fault;
            let added = lab::while_renewing(&mut [&mut fault], || ping("10.9.0.2")) - plain;
            // That it works; how exactly is the matter of another test.
            assert!((190.0..400.0).contains(&added), "{tree:?}: {added} ms");
            assert!(fault.remove_blocking().error.is_none());
            assert_same(&scene.dump(), &before, &format!("{tree:?}"));
            tree.uproot();
        }
    });
}

/// Not a test of its own: in a process that another test starts, it puts a fault in and takes it out until it is killed.
#[test]
fn holder() {
    lab::holder(&FaultKind::Partition, Direction::Both, &peer_edge(Some(8081)));
}

#[test]
fn whenever_the_agent_is_killed_its_faults_end_with_the_lease_and_clean_leaves_all_trees_as_they_were() {
    in_namespace(|| {
        let scene = Scene::new();
        let state = tempfile::tempdir().unwrap();
        let (trees, mut draws, mut met) = (Tree::possible(), Draws(2), 0);
        for round in 0..rounds(amount(6, 4), 200) {
            let tree = trees[usize::try_from(round).unwrap() % trees.len()];
            assert!(tree.plant());
            let before = scene.dump();
            // From its first instants on, when it has begun to work, or with a fault in place.
            let habit = if round % 3 == 2 { Habit::Renew } else { Habit::Flap };
            let child = hold(state.path(), habit);
            match round % 3 {
                0 => {}
                1 => wait_until("the first fault", || !has_no_journal(state.path())),
                _ => wait_until("something is in place", || scene.dump() != before),
            }
            std::thread::sleep(draws.below(Duration::from_millis(300)));
            lab::kill(child);
            let killed = Instant::now();
            wait_until("the store is reachable again", safety::is_reachable);
            // An emulated processor notices late.
            assert!(killed.elapsed() < LEASE * 2, "round {round}: a fault held for {:?}", killed.elapsed());
            met += u32::from(scene.dump() != before);
            let report = clean(state.path(), Force::No).unwrap();
            assert!(report.is_clean(), "round {round}: {:?}", report.problems);
            assert_same(&scene.dump(), &before, &format!("round {round}, {tree:?}"));
            assert!(has_no_journal(state.path()), "round {round}");
            tree.uproot();
        }
        assert!(met > 0, "no kill met a fault in place");
    });
}

#[test]
fn traffic_that_is_not_selected_loses_no_packet_while_netem_comes_and_goes() {
    in_namespace(|| {
        let scene = Scene::new();
        let state = tempfile::tempdir().unwrap();
        // The kernel itself stops a device for a moment when it gets a clsact or loses it, and drops what is sent then.
        assert!(Tree::Clsact.plant());
        // What an emulated processor can send.
        let probe = Probe::start(&scene.peer, 2000);
        for round in 1..=4 {
            let fault = apply(state.path(), delay(5), Direction::Both, peer_edge(Some(9999)));
            wait_until("some hundred packets pass", || probe.arrived() > round * 500);
            assert!(fault.remove_blocking().error.is_none());
        }
        for (sent, arrived) in probe.stop() {
            assert!(sent >= 2000, "{sent}");
            assert_eq!(arrived, sent);
        }
    });
}

fn apply_items(state: &Path, items: &str) -> stormdrill::fault::plane::Applied {
    let text = format!(
        "version: 1\nname: x\nobserve:\n  downstream: {{store: {{address: 10.9.0.2, port: 9999}}}}\nphases: {{baseline: 10s, fault: 1h, recovery: 10s}}\nfaults:\n{items}"
    );
    let faults = stormdrill_core::playbook::parse(&text).unwrap().faults;
    let faults: Vec<_> = faults.into_iter().map(|spec| (spec, peer_edge(Some(9999)))).collect();
    let mut prepared = Plane::new(state).prepare_blocking(&faults).unwrap();
    assert_eq!(prepared.len(), 1);
    prepared.remove(0).apply_blocking().unwrap()
}

#[test]
fn a_delay_after_a_loss_is_a_delay_alone_and_both_at_once_are_both() {
    in_namespace(|| {
        let scene = Scene::new();
        let state = tempfile::tempdir().unwrap();
        let shown = || run("tc", &["qdisc", "show"]).lines().filter(|line| line.contains("netem 5d01:")).collect::<String>();
        let loss = apply_items(state.path(), "  - {loss: 30%, to: store}\n");
        assert!(shown().contains("loss 30%") && !shown().contains("delay"), "{}", shown());
        assert!(loss.remove_blocking().error.is_none());
        let delay = apply_items(state.path(), "  - {delay: 20ms, to: store}\n");
        assert!(shown().contains("delay 20ms") && !shown().contains("loss"), "{}", shown());
        let mut delay = delay;
        assert_eq!(lab::while_renewing(&mut [&mut delay], || arriving(&scene.peer, 500, 9999, "10.9.0.2")), 500);
        assert!(delay.remove_blocking().error.is_none());
        let both = apply_items(state.path(), "  - {loss: 30%, to: store}\n  - {delay: 20ms, to: store}\n");
        assert!(shown().contains("loss 30%") && shown().contains("delay 20ms"), "{}", shown());
        assert!(both.remove_blocking().error.is_none());
    });
}

#[test]
fn a_loss_and_a_duplicate_of_nothing_are_accepted_and_harmless() {
    in_namespace(|| {
        let scene = Scene::new();
        let state = tempfile::tempdir().unwrap();
        for items in [
            "  - {loss: 0%, to: store}\n",
            "  - {duplicate: 0%, to: store}\n",
            "  - {loss: 0%, to: store}\n  - {duplicate: 0%, to: store}\n",
        ] {
            let mut fault = apply_items(state.path(), items);
            assert_eq!(lab::while_renewing(&mut [&mut fault], || arriving(&scene.peer, 1000, 9999, "10.9.0.2")), 1000, "{items}");
            for counts in fault.counts().unwrap() {
                assert_eq!((counts.selected, counts.hit), (1000, 0), "{items}");
            }
            assert!(fault.remove_blocking().error.is_none());
        }
    });
}

#[test]
fn duplicates_work_beside_a_duplicating_netem_of_another_and_beside_another_drills() {
    in_namespace(|| {
        let scene = Scene::new();
        let state = tempfile::tempdir().unwrap();
        // Some kernels refuse a duplicating netem in a tree that has another: ours is in a tree of its own.
        run("tc", &["qdisc", "add", "dev", "v0", "root", "handle", "1:", "netem", "duplicate", "0%", "delay", "1ms"]);
        let before = scene.dump();
        let mut first = apply_items(state.path(), "  - {duplicate: 100%, to: store}\n");
        let mut second =
            apply(state.path(), FaultKind::Duplicate { share: 1.0, correlation: 0.0 }, Direction::Egress, peer_edge(Some(9998)));
        for port in [9999, 9998] {
            let arrived = lab::while_renewing(&mut [&mut first, &mut second], || arriving(&scene.peer, 100, port, "10.9.0.2"));
            assert_eq!(arrived, 200, "{port}");
        }
        assert!(first.remove_blocking().error.is_none() && second.remove_blocking().error.is_none());
        assert_same(&scene.dump(), &before, "after both");
    });
}
