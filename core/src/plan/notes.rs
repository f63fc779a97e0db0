//! Side effects of a fault that a reader may not expect.

use crate::fault::model::{LossModel, correlated_share};
use crate::fault::{Backend, FaultKind, FaultSpec};
use crate::units::share;

/// The notes of one fault.
pub(super) fn of(spec: &FaultSpec, backend: Backend) -> Vec<String> {
    let mut notes = Vec::new();
    match &spec.kind {
        FaultKind::Delay { jitter, .. } if !jitter.is_zero() => {
            notes.push("jitter lets packets overtake each other; TCP may send some again, which are no retries".to_owned());
        }
        FaultKind::Reorder { .. } => notes.push("TCP may send what was overtaken again, which are no retries".to_owned()),
        FaultKind::LossModel(model) => {
            let long_run = format!("in the long run {:.1}% of the packets are lost", model.share() * 100.0);
            notes.push(match model {
                LossModel::Gemodel(model) if model.r > 0.0 => {
                    format!("{long_run}; a bad time lasts {:.1} packets on average", model.mean_burst())
                }
                _ => long_run,
            });
        }
        _ => {}
    }
    if let FaultKind::Duplicate { share, correlation }
    | FaultKind::Corrupt { share, correlation }
    | FaultKind::Reorder { share, correlation, .. } = spec.kind
        && correlation > 0.0
    {
        let real = correlated_share(share, correlation) * 100.0;
        notes.push(format!(
            "with a correlation of {} the kernel hits {real:.1}% of the packets, not {}",
            share::print(correlation),
            share::print(share)
        ));
    }
    if spec.tuning.seed.is_some() {
        notes.push("kernels before 6.6 ignore the seed".to_owned());
    }
    if spec.tuning.ecn {
        notes.push("packets that allow it are marked, not lost, and count as hit".to_owned());
    }
    if backend == Backend::CgroupConnect {
        notes.push("the caller sees ECONNREFUSED, before Linux 5.18 EPERM".to_owned());
    }
    notes
}
