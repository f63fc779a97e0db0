//! Runs test programs side by side: those of this host mostly wait, and a guest keeps one processor busy.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;

use super::in_vm::Guest;
use super::libtest::Tally;
use super::targets::{Target, longest_first};
use super::{Printing, on_host};

/// Programs that take longest: they begin first, so that nobody waits for one of them at the end.
const LONG: [&str; 3] = ["privileged_safety", "privileged_drill", "privileged_serve"];

/// What a worker does next.
enum Job<'t> {
    Host(&'t Target),
    Guest(Guest<'t>),
}

/// Takes from two lists, from the other where one is empty.
struct Lists<'t> {
    host: Vec<&'t Target>,
    guests: Vec<Guest<'t>>,
}

impl<'t> Lists<'t> {
    fn next(&mut self, worker: Worker) -> Option<Job<'t>> {
        let host = |lists: &mut Self| pop_front(&mut lists.host).map(Job::Host);
        let guest = |lists: &mut Self| pop_front(&mut lists.guests).map(Job::Guest);
        match worker {
            Worker::GuestsFirst => guest(self).or_else(|| host(self)),
            Worker::HostFirst => host(self).or_else(|| guest(self)),
            Worker::HostOnly => host(self),
        }
    }
}

fn pop_front<T>(list: &mut Vec<T>) -> Option<T> {
    if list.is_empty() { None } else { Some(list.remove(0)) }
}

/// What a worker prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worker {
    GuestsFirst,
    HostFirst,
    HostOnly,
}

/// As many guests at a time as there are processors, one fewer while there are programs of this host. Of those one runs at a time: two made some
/// drills of a busy machine invalid.
fn workers(processors: usize) -> Vec<Worker> {
    let mut workers = vec![Worker::GuestsFirst; processors.saturating_sub(1).max(1)];
    workers.push(if processors > 1 { Worker::HostFirst } else { Worker::HostOnly });
    workers
}

/// Runs all of them; an error of one does not keep the others from running.
pub(super) fn run(mut host: Vec<&Target>, guests: Vec<Guest<'_>>) -> Result<Tally> {
    let printing = if host.len() + guests.len() == 1 { Printing::AsItComes } else { Printing::AtItsEnd };
    longest_first(&mut host, &LONG);
    let lists = Mutex::new(Lists { host, guests });
    let total = Mutex::new(Ok(Tally::default()));
    let next = |worker| lists.lock().unwrap_or_else(PoisonError::into_inner).next(worker);
    thread::scope(|scope| {
        for worker in workers(thread::available_parallelism().map_or(1, NonZero::get)) {
            let (next, total) = (&next, &total);
            scope.spawn(move || {
                while let Some(job) = next(worker) {
                    let tally = match job {
                        Job::Host(target) => on_host(target, printing),
                        Job::Guest(guest) => guest.run(printing),
                    };
                    add(&mut total.lock().unwrap_or_else(PoisonError::into_inner), tally);
                }
            });
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The first error stays.
fn add(total: &mut Result<Tally>, tally: Result<Tally>) {
    match (&mut *total, tally) {
        (Ok(total), Ok(tally)) => *total += tally,
        (Ok(_), Err(error)) => *total = Err(error),
        (Err(_), _) => {}
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn an_error_is_not_forgotten_when_others_succeed() {
        let mut total = Ok(Tally::default());
        add(&mut total, Ok(Tally { passed: 2, ..Tally::default() }));
        assert_eq!(total.as_ref().map(|tally| tally.passed).ok(), Some(2));
        add(&mut total, Err(anyhow!("no QEMU")));
        add(&mut total, Ok(Tally { passed: 2, ..Tally::default() }));
        assert!(total.is_err_and(|error| error.to_string() == "no QEMU"));
    }

    #[test]
    fn every_machine_has_someone_for_guests_and_for_this_host() {
        for processors in [1, 2, 8] {
            let workers = workers(processors);
            assert!(workers.contains(&Worker::GuestsFirst), "{processors}");
            assert_eq!(workers.iter().filter(|worker| **worker != Worker::GuestsFirst).count(), 1, "{processors}");
        }
    }
}
