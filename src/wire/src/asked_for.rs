//! A request as shown to the person who has to approve it: the whole command, and every option that differs from its
//! default.

use serde_json::{Map, Value};

use avfs_request::spec::RequestObject;
use avfs_request::{Environment, ExecutionRequest};
use avfs_types::CommandLine;
use avfs_types::diagnose::shell_word;
use avfs_types::printable::is_hidden;

/// Keys that are shown in another form, or do not grant anything.
const NOT_LISTED: [&str; 7] =
    ["command", "command_mode", "command_base64", "vault", "vault_named", "ro_named", "environment"];

/// The name and the text of each line; each text is printed on one line.
#[must_use]
pub fn asked_for(request: &Value) -> Vec<(String, String)> {
    let mut lines = vec![("command".to_owned(), command(&request["command"]))];
    if request["vault_named"] == true {
        lines.push(("vault".to_owned(), shown(&request["vault"])));
    }
    let defaults = defaults();
    let empty = Map::new();
    for (key, value) in request.as_object().unwrap_or(&empty) {
        if NOT_LISTED.contains(&key.as_str())
            || defaults.get(key).map_or_else(|| is_empty(value), |default| value == default)
            || (key == "cwd" && value == ".")
        {
            continue;
        }
        lines.push((key.replace('_', "-"), shown(value)));
    }
    let brought = |name: &str| request["env"].get(name).is_some();
    let names = request["environment"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let passed: Vec<String> =
        names.filter(|name| !Environment::is_usual(name) && !brought(name)).map(str::to_owned).collect();
    if !passed.is_empty() {
        lines.push(("variables".to_owned(), passed.join(" ")));
    }
    lines
}

/// A request with defaults.
fn defaults() -> Value {
    let request = ExecutionRequest::of(CommandLine::Argv(Vec::new()));
    serde_json::to_value(RequestObject::of(&request, None)).unwrap_or_default()
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
fn command(value: &Value) -> String {
    let Value::Array(words) = value else { return shown(value) };
    let words = words.iter().map(|word| word.as_str().map_or_else(|| shown(word), command_word));
    words.collect::<Vec<_>>().join(" ")
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

    fn request() -> ExecutionRequest {
        ExecutionRequest::of(CommandLine::Argv(vec!["make".into(), "test".into()]))
    }

    #[test]
    fn a_request_without_options_shows_only_its_command() {
        let object = serde_json::to_value(RequestObject::of(&request(), None)).unwrap();
        assert_eq!(asked_for(&object), [("command".to_owned(), "make test".to_owned())]);
    }

    #[test]
    fn a_command_is_quoted_for_a_shell() {
        let lines = asked_for(&json!({ "command": ["git", "fetch", "a b", "it's", "a\n'b\\\u{202e}", ""] }));
        let quoted = r"git fetch 'a b' 'it'\''s' $'a\n\'b\\\U0000202e' ''";
        assert_eq!(lines, [("command".to_owned(), quoted.to_owned())]);
    }

    #[test]
    fn the_whole_request_is_shown_without_control_characters() {
        let long = format!("curl {} \u{1b}[2K\u{202e}", "x".repeat(300));
        let request = json!({
            "command": long, "net": "host", "rw": ["/srv"], "secrets": [], "env": {"A": "b\n"}, "retention": "apply",
            "environment": ["A", "PATH", "TOKEN"], "unheard_of": 1,
        });
        let lines = asked_for(&request);
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
