//! From probe events to windows: pairs requests with responses, recognises retries, attributes all to the window of the attempt's start.
