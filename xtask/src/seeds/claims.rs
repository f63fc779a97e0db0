//! The articles' claims as a checklist: in our own words, with their figures.
//!
//! A claim for which no run has a finding says why there is none: it states an opinion, or something that a machine of one's own cannot show.

/// One claim.
pub(crate) struct Claim {
    pub(crate) id: &'static str,
    pub(crate) text: &'static str,
    /// The article's own number, or what else it says for it.
    pub(crate) figure: &'static str,
    /// Why no run checks it, where none does.
    pub(crate) unchecked: &'static str,
}

const fn claim(id: &'static str, text: &'static str, figure: &'static str) -> Claim {
    Claim { id, text, figure, unchecked: "not drilled yet" }
}

const fn unchecked(id: &'static str, text: &'static str, figure: &'static str, why: &'static str) -> Claim {
    Claim { id, text, figure, unchecked: why }
}

/// The articles, by the letter of their claims.
pub(crate) const ARTICLES: [(char, &str); 4] = [
    ('A', "on retrying in several layers: budgets, jittered backoff, deadlines that are passed on"),
    ('B', "measuring how retries multiply on a laptop, a gateway's own retries included"),
    ('C', "on designing retries that stay under control, with a Python listing"),
    ('D', "on a retry storm that went through Redis to MySQL, with two Java listings"),
];

/// All of them.
pub(crate) const CLAIMS: [Claim; 68] = [
    claim("A1", "N retries in each of L layers are up to (N+1)^L calls", "N=2, L=3: 27; N=3, L=3: 64"),
    claim(
        "A2",
        "Three layers with two retries each turn a database's stumble of some tens of seconds into more than ten times the requests",
        "more than 10x",
    ),
    claim("A3", "Retries begin when capacity falls, and the backlog crushes a downstream that has recovered", "none"),
    unchecked(
        "A4",
        "Decide first in which layer to retry and how much traffic in all it may add",
        "none",
        "advice; a playbook states the second half: `downstream QPS increase ≤ 20%`",
    ),
    claim("A5", "Only the layer nearest the failure retries, the others fail fast", "one layer"),
    claim("A6", "Only what is idempotent is retried", "none"),
    claim("A7", "Refusals, resets, 503 and 429 are worth a retry; 400, 401, 404 are not", "none"),
    claim("A8", "Retry-After is obeyed", "none"),
    claim(
        "A9",
        "nginx passes errors and timeouts on to the next upstream by default, but no POST, unless told by `non_idempotent`",
        "since 1.9.13",
    ),
    claim("A10", "`proxy_next_upstream error; tries 2; timeout 3s` limits the gateway to failures to connect", "2 tries, 3 s"),
    claim("A11", "nginx's limits of tries and of time are 0 by default: no limit", "0"),
    claim("A12", "A limit of two retries a request is three times the traffic when everything fails", "3x"),
    claim("A13", "A budget holds retries to a share of the normal traffic; a client's 10% is Google's figure", "10%"),
    claim("A14", "Envoy's retry_budget of 20% with at least 3 concurrent retries holds the extra traffic", "20%, 3"),
    claim("A15", "Envoy: two retries of 503, 0.5 s a try, backoff from 0.05 s to 0.5 s", "3 tries"),
    claim("A16", "gRPC's retryThrottling stops retries at half the tokens and lets them go on by itself", "10 tokens, 0.1 each success"),
    claim("A17", "gRPC's maxAttempts counts the first attempt, and more than five are taken as five", "3; at most 5"),
    claim("A18", "Fixed intervals let clients come at once; Full Jitter spreads them from 0 to the cap", "none"),
    claim("A19", "The Python listing's budget holds retries to a tenth, with three in ten seconds always allowed", "10%, floor 3 in 10 s"),
    claim("A20", "When the budget is spent the error is given at once, nothing waits for budget", "none"),
    claim("A21", "The remaining time is looked at before each try, and a wait that would pass the deadline is not begun", "none"),
    claim("A22", "A gateway that gives up after 3 s before a service that works for 5 s makes it work for nobody", "3 s, 5 s"),
    claim("A23", "gRPC passes the remaining time on in grpc-timeout", "none"),
    claim("A24", "For HTTP a header of one's own, as X-Request-Deadline, does the same", "none"),
    claim("A25", "A try's timeout has to be below the total, or the first try uses all of it", "none"),
    claim("A26", "Thirty percent loss for five minutes on the downstream's host, by netem at the root of eth0", "30%, 300 s"),
    claim("A27", "Ingress QPS, downstream QPS and the share of retries are what to compare", "none"),
    claim(
        "A28",
        "It passes if downstream QPS rises by no more than the budget, the share of retries is back within one or two windows, and errors are explicit",
        "20%, 2 windows",
    ),
    claim("A29", "Judge the amplification and not the success ratio alone", "none"),
    claim("B1", "Four layers of three tries before a dead service: 81 calls a request", "81"),
    claim("B2", "20 requests through 0 to 4 layers of three tries", "20, 60, 180, 540, 1620"),
    claim(
        "B3",
        "Three layers of three tries at a failure rate p, 600 requests",
        "1.11, 1.45, 2.06, 9.88 calls; 100, 100, 100, 92.8% served",
    ),
    claim("B4", "At p = 30% one call succeeds 70% of the time, and all 600 requests succeeded", "600 of 600"),
    claim("B5", "A store with little capacity for 1.5 s: retries multiply its calls", "1987 against 120 in the worst second"),
    claim("B6", "For that no more requests succeed", "49% against 48%"),
    claim("B7", "With synchronous retries it is over one second after the trigger", "1 s"),
    claim(
        "B8",
        "nginx before two services of three tries, by the client's tries and nginx's settings",
        "60, 180, 9, 120, 360 calls for 20 requests",
    ),
    claim("B9", "`http_503` with max_fails=1 ejects both upstreams, and nginx then answers 502 by itself", "{503: 1, 502: 19}"),
    claim("B10", "Client, gateway and service multiply", "3 x 2 x 3 = 18"),
    unchecked(
        "B11",
        "At 160 requests a second the Python client itself failed",
        "160/s",
        "about the author's client; stormdrill's own load and the lab's report how late they were instead (`invalid` when too late)",
    ),
    unchecked(
        "B12",
        "The setup: one laptop, loopback, connections kept alive, failures by a seeded generator",
        "none",
        "a description; what ours ran on stands under the title of each section",
    ),
    unchecked(
        "B13",
        "What its author did not verify: more load, asynchronous retries, gRPC and Envoy, real latency",
        "none",
        "a list of gaps; gRPC, Envoy and deferred work have sections here",
    ),
    claim("B14", "Retries cost little at a low failure rate and most when the service is weakest", "1.11 to 9.88"),
    claim("C1", "Calls a request are 1+P+…+P^R", "1.875 at P=50%, R=3"),
    claim("C2", "That holds for independent failures only, so measure it", "none"),
    claim("C3", "The Python listing backs off 100, 200, 400 ms with jitter", "100, 200, 400 ms"),
    claim("C4", "Its budget is a sliding window", "10%"),
    claim("C5", "Its breaker opens after five failures in a row and lets one probe through after 5 s", "5; 5 s; one probe"),
    claim("C6", "Its retries stay within 10%", "10%"),
    unchecked("C7", "A mock that fails 70% of the time and eight requests", "70%, 8", "a demonstration without a number to compare"),
    claim("C8", "Backoff, budget and breaker beat plain retries in backlog, traffic, recovery and what the client feels", "none"),
    claim("C9", "No automatic retry of an order or a payment without a request id and an idempotency check", "none"),
    claim("C10", "Let the outermost gateway alone retry", "none"),
    claim("C11", "The share of retries in all requests is an early sign", "retries / all"),
    claim("C12", "A retry storm uses up connection pools", "none"),
    claim("D1", "Redis goes from 1 ms to 200 ms", "200 ms"),
    claim("D2", "The clients time out and try three times more", "3 retries"),
    claim("D3", "The pool fills, and 200 ms become refusals", "none"),
    claim("D4", "What Redis does not answer is asked of MySQL, until it has too many connections", "Too many connections"),
    claim("D5", "With fixed 100 ms all clients hit at the same moment", "100, 100, 100 ms"),
    claim("D6", "Full Jitter is a draw from 0 to min(max, base·2^attempt)", "none"),
    claim("D7", "The Java listing's backoff is that", "base·2^attempt"),
    claim("D8", "Beyond 10% retries in the last minute all further ones are refused at once", "10%, one minute"),
    claim("D9", "The Java listing's limiter does that", "10% from 100 requests on"),
    unchecked("D10", "A table of golden settings for pools and timeouts", "none", "the table is missing from the article's text"),
    unchecked(
        "D11",
        "Do not raise timeouts and retries; tighten, budget, jitter, fail fast",
        "none",
        "advice; every section here shows one part of it as a drill",
    ),
    unchecked(
        "D12",
        "All its numbers are illustrations; try on a small part first and keep a way back",
        "none",
        "advice; a playbook has guards, and the kernel ends its faults",
    ),
    claim("D13", "With the master dead, backoff alone helps nothing", "none"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_of_the_four_articles_is_listed_once_and_in_order() {
        let expected = [('A', 29), ('B', 14), ('C', 12), ('D', 13)];
        let ids: Vec<String> = expected.iter().flat_map(|(letter, count)| (1..=*count).map(move |n| format!("{letter}{n}"))).collect();
        assert_eq!(CLAIMS.iter().map(|claim| claim.id).collect::<Vec<_>>(), ids);
    }
}
