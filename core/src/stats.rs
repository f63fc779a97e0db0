//! The statistics behind the verdicts, each in a module of its own with its source.
