//! Expectations and guards written out in one canonical way, such that reading them back gives the same.

use std::fmt;

use super::metric::Row;
use super::value;
use super::{Demand, Expectation, Metric, Op, RetryBase, Within};
use crate::playbook::Guard;
use crate::units::{duration, share};
use crate::window::PhaseName;

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
        })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Row::of(*self).name)?;
        match self {
            Self::RetryRatio { of: RetryBase::First } => f.write_str(" of first"),
            Self::FailureLatency { quantile } | Self::Latency { quantile } => {
                write!(f, " p{}", share::print(*quantile).trim_end_matches('%'))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Windows(1) => f.write_str("1 window"),
            Self::Windows(count) => write!(f, "{count} windows"),
            Self::Time(time) => f.write_str(&duration::print(*time)),
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.metric == Metric::Metastable {
            return f.write_str("not metastable");
        }
        subject(f, self.edge.as_deref(), self.metric)?;
        let unit = Row::of(self.metric).unit;
        match self.demand {
            Demand::Limit { op, value, increase, phase, every_window } => {
                if increase && value < 0.0 {
                    write!(f, " {op} {}", value::print_times(value))?;
                } else if increase {
                    write!(f, " increase {op} {}", share::print(value))?;
                } else {
                    write!(f, " {op} {}", value::print(value, unit))?;
                }
                if phase != PhaseName::Fault {
                    write!(f, " during {}", phase.as_str())?;
                }
                f.write_str(if every_window { " in every window" } else { "" })
            }
            Demand::Recovers { to, within } => {
                f.write_str(" recovers")?;
                if let Some(to) = to {
                    write!(f, " to {}", value::print(to, unit))?;
                }
                write!(f, " within {within}")
            }
        }
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        subject(f, self.edge.as_deref(), self.metric)?;
        let value = value::print(self.value, Row::of(self.metric).unit);
        write!(f, " {} {value} for {}", self.op, Within::Windows(self.windows))
    }
}

fn subject(f: &mut fmt::Formatter<'_>, edge: Option<&str>, metric: Metric) -> fmt::Result {
    match edge {
        Some(edge) => write!(f, "{edge} {metric}"),
        None => write!(f, "{metric}"),
    }
}
