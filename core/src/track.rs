//! From probe events to windows: pairs requests with responses, recognises retries, attributes all to the window of the attempt's start.
pub mod aged;
pub mod attempt;
pub mod hash;
pub mod head;
pub mod http;
pub mod queue;
