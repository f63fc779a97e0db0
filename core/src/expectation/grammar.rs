//! How expectations are written: `[edge] metric [increase] op value [during phase] [in every window]`.
