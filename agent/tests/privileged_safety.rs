//! What is left of a drill that is killed, refused, or gets in another's way: nothing. On the host's kernel, with the real program.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;
mod safety;

use std::time::{Duration, Instant};

use lab::{in_namespace, wait_until};
use nix::sys::signal::Signal;
use rig::process::Process;
use safety::{Draws, LEASE, Scene, Tree, assert_same, is_reachable, playbook, rounds};

#[test]
fn a_second_drill_on_an_overlapping_target_is_refused_by_another_process_until_the_first_is_dead() {
    in_namespace(|| {
        let scene = Scene::new();
        let path = scene.agent.write(&playbook(["2s", "60s", "2s"]));
        let path = path.to_str().unwrap();
        let before = scene.dump();
        let mut first = Process::start(&mut scene.command(&["run", path]));
        first.wait_for("baseline:");
        let second = Process::start(&mut scene.command(&["run", path])).end();
        assert_eq!(second.code, Some(2), "{second:#?}");
        assert!(second.stderr.contains(&format!("of process {} is running on an overlapping target", first.pid())), "{second:#?}");
        // It was refused before it measured anything, and did the first no harm.
        assert!(!second.stderr.contains("baseline:"), "{second:#?}");
        first.wait_for("fault:");
        first.signal(Signal::SIGKILL);
        assert_eq!(first.end().code, None);
        let mut third = Process::start(&mut scene.command(&["run", path]));
        third.wait_for("fault:");
        third.signal(Signal::SIGTERM);
        assert_eq!(third.end().code, Some(4));
        assert_same(&scene.dump(), &before, "after the drills");
        assert!(scene.agent.has_no_journal());
    });
}

/// When a drill that is not disturbed comes to its phases, and to its end.
struct Course {
    baseline: Duration,
    fault: Duration,
    recovery: Duration,
    end: Duration,
}

impl Course {
    fn of(scene: &Scene, playbook: &str) -> Self {
        let path = scene.agent.write(playbook);
        let begin = Instant::now();
        let mut drill = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
        let mut reach = |phase: &str| {
            drill.wait_for(phase);
            begin.elapsed()
        };
        let (baseline, fault, recovery) = (reach("baseline:"), reach("fault:"), reach("recovery:"));
        drill.end();
        Self { baseline, fault, recovery, end: begin.elapsed() }
    }

    /// A moment to kill it: some in its first instants, some while it starts, some about the set-up of the faults, some about their removal, the rest anywhere.
    fn moment(&self, round: u32, draws: &mut Draws) -> Duration {
        const NEAR: Duration = Duration::from_millis(300);
        let about = |moment: Duration, draws: &mut Draws| (moment + draws.below(NEAR)).saturating_sub(NEAR / 2);
        match round % 4 {
            0 if round % 8 == 0 => draws.below(NEAR),
            0 => draws.below(self.baseline),
            1 => about(self.fault, draws),
            2 => about(self.recovery, draws),
            _ => draws.below(self.end),
        }
    }
}

#[test]
fn whenever_a_drill_is_killed_its_faults_end_with_the_lease_and_clean_or_the_next_start_leaves_all_as_it_was() {
    in_namespace(|| {
        let scene = Scene::new();
        let drill = playbook(["250ms", "500ms", "250ms"]);
        let course = Course::of(&scene, &drill);
        let trees = Tree::possible();
        let (mut draws, mut met) = (Draws(1), 0);
        for round in 0..rounds(16, 200) {
            let tree = trees[usize::try_from(round / 4).unwrap() % trees.len()];
            assert!(tree.plant());
            let before = scene.dump();
            let moment = course.moment(round, &mut draws);
            let mut child = scene.start(&drill);
            std::thread::sleep(moment);
            child.kill().unwrap();
            child.wait().unwrap();
            let killed = Instant::now();
            let at = format!("round {round}, {tree:?}, killed after {moment:?}");
            // The kernel takes the links of a dead process away a moment later.
            met += u32::from(scene.dump() != before);
            wait_until("the store is reachable again", is_reachable);
            assert!(killed.elapsed() < LEASE, "{at}: a fault held for {:?}", killed.elapsed());
            if round % 8 == 7 {
                // What `clean` is not asked to do, the next drill does.
                let empty = drill.split("faults:").next().unwrap();
                let path = scene.agent.write(empty);
                let mut next = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
                next.wait_for("baseline:");
                next.signal(Signal::SIGTERM);
                assert_eq!(next.end().code, Some(4), "{at}");
            } else {
                scene.clean();
            }
            wait_until("all is as it was", || scene.dump() == before || killed.elapsed() > Duration::from_secs(20));
            assert_same(&scene.dump(), &before, &format!("{at}\n{}", scene.log()));
            assert!(scene.agent.has_no_journal(), "{at}");
            tree.uproot();
        }
        assert!(met > 0, "no kill met a fault in place");
        eprintln!("{met} kills met something in place");
    });
}
