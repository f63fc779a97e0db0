//! Faults on the host's own kernel, in scratch namespaces with real traffic: what is selected, what is hit, what is left.
//! Run as root: `cargo test -p stormdrill --features privileged-tests --test privileged_fault -- --test-threads=1`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;

use lab::{Client, Nginx, dump, edge, has_no_journal, in_namespace, is_plausible, spec};
use stormdrill::fault::plane::{Applied, Plane};
use stormdrill_core::edge::{EdgeSpec, Role};
use stormdrill_core::fault::{Direction, FaultKind};

fn http_status(share: f64) -> FaultKind {
    FaultKind::HttpStatus { status: 503, share }
}

fn apply(state_dir: &std::path::Path, kind: FaultKind, direction: Direction, edge: EdgeSpec) -> Applied {
    let mut prepared = Plane::new(state_dir).prepare_blocking(&[(spec(kind, direction), edge)]).unwrap();
    assert_eq!(prepared.len(), 1);
    prepared.remove(0).apply_blocking().unwrap()
}

#[test]
fn a_share_of_real_answers_gets_the_status_and_the_counters_agree_with_the_client() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081", "127.0.0.1:8082"]);
        let before = dump();
        let mut fault = apply(state.path(), http_status(0.3), Direction::Egress, edge(Role::Downstream, Some("127.0.0.1"), Some(8081)));
        let mut client = Client::connect("127.0.0.1:8081");
        let hit = client.count("/", 2000, 503);
        assert!(is_plausible(hit, 2000, 0.3), "{hit} of 2000");
        let counts = fault.counts().unwrap()[0];
        assert_eq!((counts.selected, counts.hit), (2000, hit));
        // Another port of the same server is not touched.
        assert_eq!(Client::connect("127.0.0.1:8082").count("/", 200, 200), 200);

        let removal = fault.remove_blocking();
        assert!(removal.error.is_none(), "{:?}", removal.error);
        let outcome = &removal.outcomes[0];
        assert!(outcome.applied_ns > 0 && outcome.removed_ns.unwrap() > outcome.applied_ns);
        assert_eq!((outcome.counts.selected, outcome.counts.hit), (2000, hit));
        assert_eq!(client.count("/", 200, 200), 200);
        assert_eq!(dump(), before);
        assert!(has_no_journal(state.path()));
    });
}
