//! The corpus is read as it was written, and the recognisers can read it. To make it anew:
//!
//! `rm -rf target/corpus; STORMDRILL_RECORD=$PWD/target/corpus cargo test --no-fail-fast -p stormdrill-wire` has each unit test keep what is said in it;
//! `cargo xtask fuzz` learns further inputs; `STORMDRILL_BLESS=1 cargo test -p stormdrill-wire --test corpus` writes the files from both.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

#[path = "mod.rs"]
mod corpus;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use corpus::{LONGEST, Talk, all, read};
use stormdrill_wire::abi::protocol;
use stormdrill_wire::replay::Replay;

fn of(talk: &Talk) -> Replay {
    let start = if talk.late { Replay::found() } else { Replay::new([0, 0]) };
    let mut replay = start.pinned(talk.pin);
    let mut next = [0; 2];
    for (side, bytes) in &talk.turns {
        replay.segment(*side, next[*side], bytes, &mut ());
        next[*side] += u32::try_from(bytes.len()).unwrap();
    }
    // What nobody could tell yet is kept, not read.
    assert!(replay.bytes.iter().zip(next).all(|(read, sent)| *read <= u64::from(sent)), "{talk:?}");
    replay
}

/// The inputs of the fuzzer as conversations: its segments in order, since TCP has them so. Of those that come to the same, one.
fn found(folder: &Path) -> Vec<Talk> {
    const ORDERS: usize = 24;
    const LENGTHS: [usize; 8] = [64, 1, 5, 7, 13, 29, 200, 1460];
    let (mut talks, mut seen) = (Vec::new(), BTreeSet::new());
    for (pin, name) in ["any", "http1", "http2", "redis", "mysql", "postgres"].into_iter().enumerate() {
        let Ok(entries) = fs::read_dir(folder.join(name).join("corpus")) else { continue };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        // The shortest of each kind.
        paths.sort_unstable_by_key(|path| (fs::metadata(path).unwrap().len(), path.clone()));
        for path in paths {
            let input = fs::read(path).unwrap();
            let Some((&first, rest)) = input.split_first() else { continue };
            let Some((orders, mut content)) = rest.split_at_checked(ORDERS) else { continue };
            let mut turns = Vec::new();
            for &order in orders.iter().cycle() {
                if content.is_empty() {
                    break;
                }
                let (bytes, rest) = content.split_at(LENGTHS[usize::from(order >> 4 & 7)].min(content.len()));
                turns.push((usize::from(order & 1), bytes.to_vec()));
                content = rest;
            }
            let talk = Talk { pin: u8::try_from(pin).unwrap(), late: first & 1 == 1, turns };
            let replay = of(&talk);
            let has = [replay.requests, replay.responses].map(|count| count.min(2));
            let places = replay.conn().flows.map(|flow| flow.state.0[1] >> 32 & 0xff);
            let outcome = (pin, talk.late, has, replay.errors > 0, replay.turned_away, replay.conn().book.protocol, places);
            if talk.len() > 0 && seen.insert(outcome) {
                talks.push(talk);
            }
        }
    }
    talks
}

#[test]
fn every_conversation_of_the_corpus_is_read() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    if std::env::var("STORMDRILL_BLESS").is_ok_and(|value| value == "1") {
        let built = here.ancestors().nth(3).unwrap().join("target");
        let mut said = BTreeSet::new();
        for entry in fs::read_dir(built.join("corpus")).unwrap() {
            said.extend(read(&fs::read(entry.unwrap().path()).unwrap()));
        }
        let write = |name: &str, talks: &mut dyn Iterator<Item = Talk>| {
            fs::write(here.join(name), talks.flat_map(|talk| talk.write()).collect::<Vec<u8>>()).unwrap();
        };
        write("talks.bin", &mut said.into_iter());
        write("fuzz.bin", &mut found(&built.join("fuzz")).into_iter());
        return;
    }
    let talks = all();
    let mut requests = [0; protocol::COUNT];
    for talk in &talks {
        assert!(talk.len() <= LONGEST);
        assert_eq!(read(&talk.write()), std::slice::from_ref(talk));
        let whole = of(talk);
        requests[usize::from(whole.conn().book.protocol)] += whole.requests;
        for seed in 0..3 {
            of(&talk.cut(seed));
        }
    }
    let read = [protocol::HTTP1, protocol::HTTP2, protocol::REDIS, protocol::MYSQL, protocol::POSTGRES];
    assert!(talks.len() > 200 && read.iter().all(|&of| requests[usize::from(of)] > 100), "{}: {requests:?}", talks.len());
}
