//! A client of the Rust SDK. Input and output are those of `../typescript.mjs`.
//!
//! smcp-test-client legacy|auto CALL COMMAND ARGUMENTS…

#![allow(deprecated, reason = "logging is deprecated as of 2026-07-28, and in use")]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::ClientHandler;
use rmcp::model::RequestMetaObject;
use rmcp::model::{
    CallToolRequestParams, LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams, ProtocolVersion,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, NotificationContext, RoleClient};
use rmcp::transport::TokioChildProcess;
use serde_json::{Value, json};
use tokio::process::Command;

/// Some answers it waits for in vain, where others refuse them.
const PATIENCE: Duration = Duration::from_secs(10);

/// Keeps what it is notified of.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<Value>>>);

impl ClientHandler for Listener {
    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.lock().expect("nobody panics").push(params.data);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mode, call, command, arguments @ ..] = &words[..] else {
        return Err("legacy|auto CALL COMMAND ARGUMENTS…".into());
    };
    let said = tokio::time::timeout(PATIENCE, talk(mode == "auto", &serde_json::from_str(call)?, command, arguments))
        .await??;
    println!("{said}");
    Ok(())
}

async fn talk(probes: bool, call: &Value, command: &str, arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let mut server = Command::new(command);
    server.args(arguments);
    let lifecycle = match probes {
        true => {
            ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None }
        }
        false => ClientLifecycleMode::Initialize,
    };
    let listener = Listener::default();
    let client = listener.clone().serve_with_lifecycle(TokioChildProcess::new(server)?, lifecycle).await?;
    let about = client.peer_info().ok_or("no handshake")?;
    let meta = (about.protocol_version == ProtocolVersion::V_2026_07_28).then(|| {
        let mut meta = RequestMetaObject::new();
        meta.set_log_level(LoggingLevel::Info);
        meta
    });
    let mut page = PaginatedRequestParams::default();
    page.meta = meta.clone();
    let tools = client.list_tools(Some(page)).await?.tools;
    let name = call["name"].as_str().ok_or("a name")?.to_owned();
    let mut asked = CallToolRequestParams::new(name);
    asked.arguments = call["arguments"].as_object().cloned();
    asked.meta = meta;
    let called = client.call_tool(asked).await?;
    let tools = tools.iter().map(|tool| (tool.name.to_string(), json!(tool.description)));
    let blocks = called.content.iter().map(|block| json!(block.as_text().map(|text| &text.text)));
    let said = json!({
        "version": about.protocol_version.to_string(),
        "instructions": about.instructions,
        "tools": tools.collect::<serde_json::Map<_, _>>(),
        "blocks": blocks.collect::<Vec<_>>(),
        "notified": *listener.0.lock().expect("nobody panics"),
    });
    client.cancel().await?;
    Ok(said)
}
