//! Outside shapes of a result. The JSON views derive serde here, so that domain types need not.
