//! The page at `/` of a real daemon, used by a real browser: drills are started, watched, aborted and read as a person would.
//! Run as root: `cargo xtask test --only privileged_page`. Needs Debian's packages chromium and chromium-driver.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod browser;
mod lab;
mod rig;

use std::fs;

use browser::Browser;
use lab::{dump, in_namespace, wait_until};
use rig::agent::Agent;
use rig::client::ask;
use rig::daemon::Daemon;
use rig::playbook::Playbook;
use rig::services::{Load, Service};

const ENTER: &str = "\u{e007}";

/// A store behind a layer that retries, under load, and a daemon that has a playbook for it.
struct Scene {
    store: Service,
    chain: Service,
    agent: Agent,
    daemon: Daemon,
    _load: Load,
}

impl Scene {
    /// With these further lines of configuration.
    fn new(config: &str) -> Self {
        let store = Service::store(&[]);
        let chain = Service::chain(1, &store.address, &["--tries", "3", "--timeout", "2s"]);
        let load = Load::start(&chain.address, &["--rate", "50/s", "--duration", "600s", "--timeout", "2s"]);
        let agent = Agent::new();
        let folder = agent.path("playbooks");
        fs::create_dir(&folder).unwrap();
        let (host, port) = store.address.rsplit_once(':').unwrap();
        let observe = format!(
            "observe: {{ingress: {{web: {{port: {}}}}}, downstream: {{store: {{address: {host}, port: {port}}}}}, window: 500ms}}\n",
            chain.port()
        );
        let daemon = Daemon::start(&agent, &format!("playbooks: {}\n{observe}{config}", folder.display()));
        let scene = Self { store, chain, agent, daemon, _load: load };
        let text = scene.endless().replacen('\n', "\ndescription: \"Half of the store's answers <b>fail</b>\"\n", 1);
        fs::write(folder.join("store-fails.yaml"), text.replace("name: a-test", "name: store-fails")).unwrap();
        fs::write(folder.join("broken.yaml"), "version: 1\n").unwrap();
        scene
    }

    /// A drill that lasts until somebody ends it.
    fn endless(&self) -> String {
        Playbook::new(&self.chain, &self.store)
            .phases(2, 300, 1)
            .fault("{http_status: {status: 503, share: 50%}, to: store}")
            .expect("store downstream QPS <= 500")
            .text()
    }

    fn url(&self) -> String {
        format!("http://{}/", self.daemon.address)
    }

    fn open(&self) -> Browser {
        let browser = Browser::start(&self.agent);
        browser.open(&self.url());
        browser
    }
}

/// Texts whose contrast with what they stand on is below 4.5 to 1 (3 to 1 if large), as WCAG 2 reckons it.
const FAINT: &str = r#"
    const channels = color => color.match(/[\d.]+/g).map(Number);
    const light = color => {
        const [r, g, b] = channels(color).map(v => v / 255).map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = node => {
        for (; node; node = node.parentElement) {
            const color = getComputedStyle(node).backgroundColor;
            if ((channels(color)[3] ?? 1) > 0) return color;
        }
        return "rgb(255, 255, 255)";
    };
    const faint = [];
    for (const node of document.body.querySelectorAll("*")) {
        const has_text = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
        if (!has_text || !node.checkVisibility() || node.disabled || node.closest("svg")) continue;
        const style = getComputedStyle(node);
        const [a, b] = [light(style.color), light(ground(node))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        const is_large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
        if (ratio < (is_large ? 3 : 4.5)) faint.push(`${node.textContent.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
    }
    return faint;
"#;

/// What can be reached with the keyboard or filled in and has no name that a screen reader could read.
const NAMELESS: &str = r#"
    const named = node => node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") || node.labels?.length || node.textContent.trim();
    return [...document.querySelectorAll("button, a, input, textarea, [tabindex], dialog")].filter(node => !named(node) && node.id !== "main").map(node => node.outerHTML);
"#;

/// Tables, and the line that says who answers, that are wider than the room that they have.
const CUT_OFF: &str = r#"
    const parts = [...document.querySelectorAll('.scroll, .where')];
    return parts.filter(node => node.scrollWidth > node.clientWidth).map(node => node.textContent);
"#;

#[test]
fn a_drill_is_started_watched_aborted_and_read_in_a_browser() {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new("");
        let page = scene.open();
        page.wait_for_text("#edges", "store");
        page.wait_for_text("#playbooks", "<b>fail</b>");
        assert_eq!(page.find(r#"[aria-label="Start broken"]"#).unwrap().attribute("disabled").as_deref(), Some("true"));

        // Asked for once, nothing happens yet.
        page.find(r#"[aria-label="Start store-fails"]"#).unwrap().click();
        page.wait_for("#confirm");
        assert!(page.find("#running article").is_none());
        page.find("#confirm-yes").unwrap().click();
        page.wait_for_text(r#"#running article [aria-current="step"]"#, "fault");
        wait_until("the fault is there", || ask(&scene.store.address) == Some(503));
        page.wait_for_text("#news", "store-fails: fault");
        let points = "return document.querySelector('#running polyline')?.getAttribute('points').split(' ').length ?? 0";
        let seen = page.run(points).as_u64().unwrap();
        wait_until("the chart goes on", || page.run(points).as_u64().unwrap() > seen + 3);
        wait_until("retries are shown", || {
            let cells = "return [...document.querySelectorAll('#running tbody tr')].map(row => row.cells[3].textContent)";
            page.run(cells)[1].as_str().is_some_and(|share| share.ends_with('%') && share != "0.0%")
        });
        wait_until("hits are shown", || page.find("#running article").unwrap().text().contains("http_status: "));
        page.width(1280, 1000);

        // The same target cannot be disturbed twice.
        page.find(r#"[aria-label="Start store-fails"]"#).unwrap().click();
        page.wait_for("#confirm-yes").click();
        page.wait_for_text("#confirm-problem", "overlapping");
        page.find(r#"#confirm [value="no"]"#).unwrap().click();

        page.find(r#"[aria-label="Abort store-fails"]"#).unwrap().click();
        page.wait_for_text("#results li:first-child .badge", "ABORTED");
        assert_eq!(ask(&scene.store.address), Some(200));
        assert_eq!(dump(), before);
        wait_until("the card is gone", || page.find("#running article").is_none());
        assert!(page.find("#results li").unwrap().text().contains("aborted through the API"));
        page.find("#results li:first-child button").unwrap().click();
        page.wait_for_text("#results li:first-child .more", "500/s");
        page.width(390, 1000);
        assert_eq!(page.run(CUT_OFF), serde_json::json!([]), "a result on a phone");
        page.width(1280, 1000);
        let report = page.wait_for("#results li:first-child .more a").attribute("href").unwrap();
        page.open(&format!("http://{}{report}", scene.daemon.address));
        page.wait_for_text("h1", "store-fails");
        page.open(&scene.url());
        page.wait_for_text("#results", "store-fails");
        // The refused start is an answer that the browser notes; nothing else went wrong, no policy was violated.
        let errors = page.errors();
        assert!(errors.iter().all(|error| error.contains("409")), "{errors:#?}");
        page.stop();
        scene.daemon.stop();
    });
}

#[test]
fn a_pasted_playbook_is_checked_where_it_stands_and_started_with_the_keyboard_alone() {
    in_namespace(|| {
        let scene = Scene::new("");
        let page = scene.open();
        page.wait_for("#paste summary").type_text(ENTER);
        let good = scene.endless();
        page.wait_for("#yaml").type_text(&good.replace("share: 50%", "share: 500%"));
        page.find("#check").unwrap().type_text(ENTER);
        page.wait_for_text("#yaml-result", "share");
        let line = good.lines().position(|line| line.contains("share")).unwrap() + 1;
        let link = page.find("#yaml-result button").unwrap();
        assert_eq!(link.text(), format!("Line {line}"));
        link.type_text(ENTER);
        let marked = page.run("const f = document.activeElement; return f.value.slice(f.selectionStart, f.selectionEnd)");
        assert!(marked.as_str().unwrap().starts_with("500%"), "{marked}");
        page.run(&format!("document.getElementById('yaml').value = {}", serde_json::Value::from(good)));
        page.find("#check").unwrap().type_text(ENTER);
        page.wait_for_text("#yaml-result", "a-test can be run");
        page.find("#yaml-form .primary").unwrap().type_text(ENTER);
        page.wait_for("#confirm-yes").type_text(ENTER);
        page.wait_for(r#"[aria-label="Abort a-test"]"#).type_text(ENTER);
        page.wait_for_text("#results li:first-child .badge", "ABORTED");
        assert_eq!(page.errors(), Vec::<String>::new());
        page.stop();
        scene.daemon.stop();
    });
}

#[test]
fn with_a_token_the_page_asks_for_it_and_keeps_it_in_the_tab_only() {
    in_namespace(|| {
        let token = tempfile::NamedTempFile::new().unwrap();
        fs::write(token.path(), "a-token-of-the-test\n").unwrap();
        let scene = Scene::new(&format!("token_file: {}\n", token.path().display()));
        let page = scene.open();
        page.wait_for("#token").type_text(&format!("not-the-token-at-all{ENTER}"));
        page.wait_for_text("#token-problem", "not the token");
        assert!(page.find("#content").is_none());
        page.find("#token").unwrap().type_text(&format!("a-token-of-the-test{ENTER}"));
        page.wait_for(r#"[aria-label="Start store-fails"]"#).click();
        page.wait_for("#confirm-yes").click();
        page.wait_for_text(r#"#running article [aria-current="step"]"#, "fault");
        page.open(&scene.url());
        page.wait_for(r#"[aria-label="Abort store-fails"]"#).click();
        page.wait_for_text("#results li:first-child .badge", "ABORTED");
        page.find("#results li:first-child button").unwrap().click();
        page.wait_for_text("#results li:first-child .more", "Save the report");
        assert_eq!(
            page.run("return [location.href.includes('token'), localStorage.length, document.cookie]"),
            serde_json::json!([false, 0, ""])
        );
        page.run("sessionStorage.clear(); location.reload()");
        page.wait_for("#token");
        page.stop();
        scene.daemon.stop();
    });
}

#[test]
fn the_page_is_readable_in_light_and_dark_named_for_screen_readers_still_on_demand_and_asks_nobody_else() {
    in_namespace(|| {
        let scene = Scene::new("");
        let page = scene.open();
        page.wait_for(r#"[aria-label="Start store-fails"]"#).click();
        page.wait_for("#confirm-yes").click();
        page.wait_for_text("#running article tbody", "store");
        for theme in ["light", "dark"] {
            page.prefer(&[("prefers-color-scheme", theme), ("prefers-reduced-motion", "reduce")]);
            assert_eq!(page.run(FAINT), serde_json::json!([]), "{theme}");
            assert_eq!(page.run("return document.getAnimations().length"), 0);
            for width in [1280, 360] {
                page.width(width, 900);
                let overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
                assert_eq!(page.run(overflow), 0, "{theme} {width}");
            }
            page.width(390, 900);
            assert_eq!(page.run(CUT_OFF), serde_json::json!([]), "the running drill on a phone");
        }
        assert_eq!(page.run(NAMELESS), serde_json::json!([]));
        let outline = "return ['header', 'nav', 'main', 'h1'].map(tag => document.querySelectorAll(tag).length)";
        assert_eq!(page.run(outline), serde_json::json!([1, 1, 1, 1]));
        let others = "return performance.getEntriesByType('resource').map(one => one.name).filter(url => !url.startsWith(location.origin))";
        assert_eq!(page.run(others), serde_json::json!([]));
        // A script that somebody got into the page does not run.
        page.run(
            "try { const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s) } catch {}",
        );
        assert_eq!(page.run("return window.hacked ?? null"), serde_json::Value::Null);
        page.stop();
        scene.daemon.stop();
    });
}

/// No test: with `STORMDRILL_PICTURES=DIR` the pictures of the README, taken of one drill from its fault to its report.
#[test]
fn pictures_of_a_drill_if_they_are_asked_for() {
    if std::env::var_os("STORMDRILL_PICTURES").is_none() {
        return;
    }
    in_namespace(|| {
        let scene = Scene::new("");
        let folder = scene.agent.path("playbooks");
        let write = |name: &str, description: &str, fault: u32| {
            let playbook = Playbook::new(&scene.chain, &scene.store).phases(12, fault, 8);
            let playbook = playbook.fault("{http_status: {status: 503, share: 30%}, to: store}").expect("downstream QPS increase ≤ 20%");
            let text = playbook.expect("store amplification <= 1.2").expect("retry ratio recovers within 2 windows").text();
            let text = text.replace("name: a-test", &format!("name: {name}\ndescription: \"{description}\"")).replace("500ms", "1s");
            fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
        };
        write("store-503", "A third of the store's answers fail", 20);
        write("store-blip", "The same for six seconds: do the retries stay?", 6);
        for other in ["broken.yaml", "store-fails.yaml"] {
            fs::remove_file(folder.join(other)).unwrap();
        }
        let start = |name: &str| {
            let body = format!("{{\"name\": \"{name}\"}}");
            let (status, drill) = scene.daemon.send("POST", "/v1/drills", "Content-Type: application/json\r\n", &body);
            assert_eq!(status, 201, "{drill}");
            serde_json::from_str::<serde_json::Value>(&drill).unwrap()["id"].as_str().unwrap().to_owned()
        };
        scene.daemon.ended(&start("store-blip"));
        let page = scene.open();
        let id = start("store-503");
        page.wait_for_text("#running article", "fault, 6 s left");
        page.whole(1280, 1000);
        page.picture("page.png");
        page.prefer(&[("prefers-color-scheme", "dark")]);
        page.whole(390, 2000);
        page.picture("page-phone.png");
        page.prefer(&[]);
        scene.daemon.ended(&id);
        page.open(&format!("{}v1/drills/{id}/report", scene.url()));
        page.whole(1100, 1075);
        page.picture("report.png");
        page.stop();
        scene.daemon.stop();
    });
}
