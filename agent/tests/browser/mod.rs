//! A real browser, driven over WebDriver by plain HTTP: Debian's chromium and chromium-driver.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::lab::wait_until;
use crate::rig::agent::Agent;
use crate::rig::process::Process;

const DRIVER: &str = "chromedriver";
/// How WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A headless browser with one page.
pub(crate) struct Browser {
    address: String,
    session: String,
    driver: Process,
}

impl Browser {
    pub(crate) fn start(agent: &Agent) -> Self {
        // The port is free once the listener is dropped, and nobody else is in the namespace to take it.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new(DRIVER);
        command.arg(format!("--port={}", address.rsplit(':').next().unwrap())).arg("--log-level=OFF");
        let driver = Process::start(command.env("HOME", agent.path("home")));
        wait_until("the driver answers", || {
            TcpStream::connect(&address).is_ok() && send(&address, "GET", "/status", &Value::Null)["ready"] == true
        });
        let profile = agent.path("profile");
        let arguments = json!([
            "--headless=new",
            // Chromium's sandbox does not work for root.
            "--no-sandbox",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-proxy-server",
            "--window-size=1280,1000",
            format!("--user-data-dir={}", profile.display()),
        ]);
        let wanted = json!({ "alwaysMatch": { "goog:chromeOptions": { "args": arguments }, "goog:loggingPrefs": { "browser": "ALL" } } });
        let answer = send(&address, "POST", "/session", &json!({ "capabilities": wanted }));
        let session = answer["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer:#}")).to_owned();
        Self { address, session, driver }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        send(&self.address, method, &format!("/session/{}{path}", self.session), body)
    }

    pub(crate) fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    /// What a function's body gives.
    pub(crate) fn run(&self, script: &str) -> Value {
        let value = self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] }));
        assert!(value.get("error").is_none(), "{script}: {value:#}");
        value
    }

    /// An element by its CSS selector; `None` if it is not there or cannot be seen.
    pub(crate) fn find(&self, selector: &str) -> Option<Element<'_>> {
        let found = self.ask("POST", "/element", &json!({ "using": "css selector", "value": selector }));
        let element = Element { browser: self, id: found.get(ELEMENT)?.as_str()?.to_owned() };
        (element.get("displayed") == true).then_some(element)
    }

    /// Waits for an element that can be seen.
    pub(crate) fn wait_for(&self, selector: &str) -> Element<'_> {
        wait_until(&format!("{selector} is shown"), || self.find(selector).is_some());
        self.find(selector).unwrap_or_else(|| panic!("{selector} came and went"))
    }

    /// Waits until an element's text contains something.
    pub(crate) fn wait_for_text(&self, selector: &str, part: &str) {
        wait_until(&format!("{selector} says {part:?}"), || self.find(selector).is_some_and(|element| element.text().contains(part)));
    }

    /// What the page wrote to its console as errors, violations of its policy included.
    pub(crate) fn errors(&self) -> Vec<String> {
        let entries = self.ask("POST", "/se/log", &json!({ "type": "browser" }));
        let entries = entries.as_array().unwrap_or_else(|| panic!("{entries:#}"));
        entries.iter().filter(|entry| entry["level"] == "SEVERE").map(|entry| entry["message"].to_string()).collect()
    }

    /// A command of the DevTools protocol.
    pub(crate) fn devtools(&self, command: &str, parameters: &Value) {
        let answer = self.ask("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }));
        assert!(answer.get("error").is_none(), "{command}: {answer:#}");
    }

    /// Looks as somebody who prefers this, as `("prefers-color-scheme", "dark")`.
    pub(crate) fn prefer(&self, features: &[(&str, &str)]) {
        let features: Vec<Value> = features.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// As wide as this, in CSS pixels.
    pub(crate) fn width(&self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// As wide as this, and as high as the page then is, but not higher than `most`.
    pub(crate) fn whole(&self, width: u32, most: u32) {
        self.width(width, 600);
        let height = self.run("return document.documentElement.scrollHeight").as_u64().unwrap();
        self.width(width, u32::try_from(height).unwrap().min(most));
    }

    /// Keeps what can be seen as a picture, if a folder for pictures is given by `STORMDRILL_PICTURES`.
    pub(crate) fn picture(&self, name: &str) {
        if let Some(folder) = std::env::var_os("STORMDRILL_PICTURES").map(PathBuf::from) {
            let taken = self.ask("GET", "/screenshot", &Value::Null);
            let mut decode = Command::new("base64");
            let file = fs::File::create(folder.join(name)).unwrap();
            let mut child = decode.arg("-d").stdin(std::process::Stdio::piped()).stdout(file).spawn().unwrap();
            child.stdin.take().unwrap().write_all(taken.as_str().unwrap().as_bytes()).unwrap();
            assert!(child.wait().unwrap().success());
        }
    }

    /// Ends the browser and its driver.
    pub(crate) fn stop(self) {
        self.ask("DELETE", "", &Value::Null);
        self.driver.signal(Signal::SIGTERM);
        self.driver.end();
    }
}

/// Something on the page.
pub(crate) struct Element<'b> {
    browser: &'b Browser,
    id: String,
}

impl Element<'_> {
    fn get(&self, what: &str) -> Value {
        self.browser.ask("GET", &format!("/element/{}/{what}", self.id), &Value::Null)
    }

    /// Scrolls there and clicks, as a user would: what covers it gets the click.
    pub(crate) fn click(&self) {
        let answer = self.browser.ask("POST", &format!("/element/{}/click", self.id), &json!({}));
        assert!(answer.get("error").is_none(), "{answer:#}");
    }

    /// Types; `\u{e007}` is Enter, `\u{e004}` is Tab.
    pub(crate) fn type_text(&self, text: &str) {
        let answer = self.browser.ask("POST", &format!("/element/{}/value", self.id), &json!({ "text": text }));
        assert!(answer.get("error").is_none(), "{answer:#}");
    }

    pub(crate) fn text(&self) -> String {
        self.get("text").as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<String> {
        self.get(&format!("attribute/{name}")).as_str().map(str::to_owned)
    }
}

fn send(address: &str, method: &str, path: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    // The driver leaves connections open, so the length says where the answer ends.
    let mut answer = BufReader::new(stream);
    let mut length = 0;
    for line in answer.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()) {
        if let Some((_, value)) = line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
            length = value.trim().parse().unwrap();
        }
    }
    let mut bytes = vec![0; length];
    answer.read_exact(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let mut answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{method} {path}: {error}: {text}"));
    answer["value"].take()
}
