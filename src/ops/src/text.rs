//! Texts of notices, and of the answers for people.

use avfs_wire::VersionObject;

/// The first line of a text.
#[must_use]
pub fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The first line of a command. If it has more lines, an ellipsis follows it; before the closing quote if it is part
/// of a quoted word.
#[must_use]
pub fn command_line(command: &str) -> String {
    let (line, rest) = command.split_once('\n').unwrap_or((command, ""));
    if rest.trim().is_empty() {
        return line.to_owned();
    }
    let (mut quote, mut is_escaped) = (None, false);
    for c in line.chars() {
        match (quote, c) {
            _ if is_escaped => is_escaped = false,
            (None | Some('"'), '\\') => is_escaped = true,
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None | Some(_), _) => {}
        }
    }
    let line = if is_escaped { line.strip_suffix('\\').unwrap_or(line) } else { line };
    match quote {
        Some(close) => format!("{line}…{close}"),
        None => format!("{} …", line.trim_end()),
    }
}

/// The message of a version on one line: the command of the run that created it, or a text.
#[must_use]
pub fn message_line(version: &VersionObject) -> String {
    match version.run {
        Some(_) => command_line(&version.message),
        None => first_line(&version.message).to_owned(),
    }
}

/// `1 file`, `2 files`.
#[must_use]
pub fn plural(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("{count} {one}") } else { format!("{count} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_command_has_no_open_quote() {
        for (command, shown) in [
            ("make", "make"),
            ("make\n", "make"),
            ("make\nls", "make …"),
            ("sh -c 'echo a\necho b'", "sh -c 'echo a…'"),
            ("sh -c 'echo '\\''a\nb'\\'''", r"sh -c 'echo '\''a…'"),
            ("echo \"it's\nb\"", "echo \"it's…\""),
            ("echo \\'a\nb", r"echo \'a …"),
            ("echo \"\\\"\nb\"", "echo \"\\\"…\""),
            ("make \\\n  all", "make …"),
            ("sh -c '\necho b'", "sh -c '…'"),
        ] {
            assert_eq!(command_line(command), shown, "{command:?}");
        }
    }
}
