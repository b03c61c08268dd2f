//! A browser that shows a file: Chromium without a window, told what to do by pipes (the DevTools protocol). It has no way to any
//! network.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::needs;
use crate::patience::PATIENCE;

/// One tab of a browser.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    count: u64,
    /// What it has told without being asked: `Network.requestWillBeSent`, `Log.entryAdded` and so on.
    pub events: Vec<Value>,
}

impl Browser {
    /// Starts one, where the machine has it. What it keeps goes below a directory.
    pub fn start(keeps: &Path) -> Option<Browser> {
        let program = needs::program("chromium-headless-shell", "chromium-headless-shell")?;
        // The protocol's descriptors are 3 and 4.
        let mut child = Command::new("/bin/sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null"])
            .arg(program)
            .args(["--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
            .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--no-proxy-server", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", keeps.display()))
            .env("HOME", keeps)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it is there");
        let to = child.stdin.take().expect("it is a pipe");
        let from = child.stdout.take().expect("it is a pipe");
        let (sender, receiver) = channel();
        thread::spawn(move || {
            for message in BufReader::new(from).split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("the protocol is JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser { child, to, from: receiver, session: None, count: 0, events: Vec::new() };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.ask("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Does something and gives the result.
    #[track_caller]
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.count += 1;
        let mut message = json!({"id": self.count, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser reads");
        loop {
            let message = self.next(method);
            if message["id"] == self.count {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    fn next(&mut self, what: &str) -> Value {
        let message = self.from.recv_timeout(PATIENCE).unwrap_or_else(|why| panic!("{what}: no answer: {why}"));
        if message["method"].is_string() {
            self.events.push(message.clone());
        }
        message
    }

    /// Shows a file, until it is loaded.
    pub fn show(&mut self, file: &Path) {
        self.ask("Page.navigate", json!({"url": format!("file://{}", file.display())}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            self.next("loading");
        }
    }

    /// The value of an expression of JavaScript.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let answer = self.ask("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Shows it as on a screen or on paper, to one who likes it light or dark.
    pub fn media(&mut self, media: &str, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"media": media, "features": features}));
    }

    /// How large the window is.
    pub fn size(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", size);
    }

    /// A picture of the whole page, PNG.
    pub fn picture(&mut self) -> Vec<u8> {
        let answer = self.ask("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true}));
        decoded(&answer["data"])
    }

    /// The page as it is printed, PDF.
    pub fn printed(&mut self) -> Vec<u8> {
        let answer = self.ask("Page.printToPDF", json!({"preferCSSPageSize": true, "printBackground": true}));
        decoded(&answer["data"])
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            self.ask("Input.dispatchKeyEvent", event);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its processes end with the one that was started.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn decoded(data: &Value) -> Vec<u8> {
    STANDARD.decode(data.as_str().expect("it is base64")).expect("it is base64")
}
