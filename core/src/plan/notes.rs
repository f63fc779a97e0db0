//! Side effects of a fault that a reader may not expect.

use crate::edge::{EdgeSpec, Role};
use crate::fault::model::{LossModel, correlated_share};
use crate::fault::{Backend, FaultKind, FaultSpec, HTTP2_STATUSES, Requests};
use crate::units::share;

/// The notes of one fault.
pub(super) fn of(spec: &FaultSpec, edge: Option<&EdgeSpec>, backend: Backend) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(edge) = edge.filter(|edge| edge.role == Role::Ingress) {
        notes.push(format!(
            "{0}'s own success, goodput and latency do not show it, and are not judged: the callers are beyond it; judge it at their edge",
            edge.name
        ));
    }
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
        FaultKind::HttpStatus { status, .. } => notes.push(http2(*status, &spec.select.requests)),
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

/// What becomes of HTTP/2.
fn http2(status: u16, requests: &Requests) -> String {
    if !requests.is_all() {
        "HTTP/2 answers are left alone: their requests are compressed, and not read for method and path".to_owned()
    } else if HTTP2_STATUSES.contains(&status) {
        "HTTP/2 answers with status 200, 206, 400, 404 or 500 too".to_owned()
    } else {
        "HTTP/2 answers are left alone: they can only be given 200, 206, 400, 404 or 500".to_owned()
    }
}
