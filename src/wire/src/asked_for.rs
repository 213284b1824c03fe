//! A request as shown to the person who has to approve it: the whole command, and every option that differs from its
//! default.

use serde_json::{Map, Value};

use avfs_request::Environment;
use avfs_request::spec::{CommandText, RequestObject};
use avfs_types::diagnose::shell_word;
use avfs_types::printable::is_hidden;

use crate::journal::Recorded;

/// Keys that are shown in another form, or do not grant anything.
const NOT_LISTED: [&str; 7] =
    ["command", "command_mode", "command_base64", "vault", "vault_named", "ro_named", "environment"];

/// The name and the text of each line; each text is printed on one line.
#[must_use]
pub fn asked_for(request: &Recorded<RequestObject>) -> Vec<(String, String)> {
    let request = match request {
        Recorded::Read(request) => request,
        Recorded::Unreadable { stored, problem } => {
            let lines = [("command", "(unreadable)".to_owned()), ("problem", problem.clone())];
            let lines = lines.into_iter().chain([("request", stored.to_string())]);
            return lines.map(|(name, text)| (name.to_owned(), text)).collect();
        }
    };
    let mut lines = vec![("command".to_owned(), command(&request.command))];
    if request.vault_named {
        lines.push(("vault".to_owned(), request.vault.clone().unwrap_or_default()));
    }
    let defaults = keys(&RequestObject::default());
    for (key, value) in &keys(request) {
        if NOT_LISTED.contains(&key.as_str())
            || defaults.get(key).map_or_else(|| is_empty(value), |default| value == default)
            || (key == "cwd" && value == ".")
        {
            continue;
        }
        lines.push((key.replace('_', "-"), shown(value)));
    }
    let is_listed = |name: &&String| !Environment::is_usual(name) && !request.env.contains_key(*name);
    let passed: Vec<&str> = request.environment.iter().filter(is_listed).map(String::as_str).collect();
    if !passed.is_empty() {
        lines.push(("variables".to_owned(), passed.join(" ")));
    }
    lines
}

/// Every key of a request, and those of a later version: nothing that a request asks for may be left out here.
fn keys(request: &RequestObject) -> Map<String, Value> {
    match serde_json::to_value(request) {
        Ok(Value::Object(keys)) => keys,
        Ok(_) | Err(_) => Map::new(),
    }
}

/// True for a value that is equivalent to an absent key.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(pairs) => pairs.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The command, quoted for a shell.
fn command(command: &CommandText) -> String {
    match command {
        CommandText::Argv(words) => words.iter().map(|word| command_word(word)).collect::<Vec<_>>().join(" "),
        CommandText::Shell(line) => line.clone(),
    }
}

/// A word with hidden characters is quoted so that each of them can be seen, and differs from its escape.
fn command_word(word: &str) -> String {
    if !word.contains(is_hidden) {
        return shell_word(word.as_ref());
    }
    let mut quoted = String::from("$'");
    for c in word.chars() {
        match c {
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\'' | '\\' => quoted.extend(['\\', c]),
            c if is_hidden(c) => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(quoted).collect::<Vec<_>>().join(" "),
        Value::Object(pairs) => {
            let pair = |(name, value): (&String, &Value)| format!("{name}={}", quoted(value));
            pairs.iter().map(pair).collect::<Vec<_>>().join(" ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn quoted(value: &Value) -> String {
    value.as_str().map_or_else(|| shown(value), |text| format!("{text:?}"))
}

#[cfg(test)]
mod tests {
    use avfs_types::printable;

    use serde_json::json;

    use super::*;

    fn lines(request: Value) -> Vec<(String, String)> {
        asked_for(&serde_json::from_value(request).unwrap())
    }

    #[test]
    fn a_request_without_options_shows_only_its_command() {
        let words = CommandText::Argv(vec!["make".to_owned(), "test".to_owned()]);
        let request = Recorded::Read(RequestObject { command: words, ..RequestObject::default() });
        assert_eq!(asked_for(&request), [("command".to_owned(), "make test".to_owned())]);
    }

    #[test]
    fn a_command_is_quoted_for_a_shell() {
        let lines = lines(json!({ "command": ["git", "fetch", "a b", "it's", "a\n'b\\\u{202e}", ""] }));
        let quoted = r"git fetch 'a b' 'it'\''s' $'a\n\'b\\\U0000202e' ''";
        assert_eq!(lines, [("command".to_owned(), quoted.to_owned())]);
    }

    #[test]
    fn an_unreadable_request_is_shown_whole() {
        let text = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let lines = lines(json!({ "command": ["x"], "rw": "/" }));
        assert_eq!(lines.first(), Some(&text("command", "(unreadable)")));
        assert_eq!(lines.last(), Some(&text("request", r#"{"command":["x"],"rw":"/"}"#)));
    }

    #[test]
    fn the_whole_request_is_shown_without_control_characters() {
        let long = format!("curl {} \u{1b}[2K\u{202e}", "x".repeat(300));
        let request = json!({
            "command": long, "net": "host", "rw": ["/srv"], "secrets": [], "env": {"A": "b\n"}, "retention": "apply",
            "environment": ["A", "PATH", "TOKEN"], "unheard_of": 1,
        });
        let lines = lines(request);
        let text = lines
            .iter()
            .map(|(name, text)| format!("{name}: {}\n", printable::line(text)))
            .collect::<String>();
        let wanted = [
            format!("command: curl {} \\u{{1b}}[2K\\u{{202e}}\n", "x".repeat(300)),
            "env: A=\"b\\n\"\n".to_owned(),
            "net: host\n".to_owned(),
            "retention: apply\n".to_owned(),
            "rw: \"/srv\"\n".to_owned(),
            "unheard-of: 1\n".to_owned(),
            "variables: TOKEN\n".to_owned(),
        ];
        for line in &wanted {
            assert!(text.contains(line.as_str()), "{line} in {text}");
        }
        assert_eq!(lines.len(), wanted.len(), "{text}");
    }
}
