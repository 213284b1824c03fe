//! The variables that a shell text uses.
//!
//! Considers only quotes and backslashes: the result is used in a note to people, not in a decision.

/// Variables that every shell sets itself.
const OWN: [&str; 17] = [
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "PPID",
    "UID",
    "EUID",
    "RANDOM",
    "LINENO",
    "IFS",
    "OPTIND",
    "OPTARG",
    "HOSTNAME",
    "HOSTTYPE",
    "SECONDS",
    "BASH_VERSION",
    "PS1",
];

/// The names after `$` and `${`, in source order, except those that a shell sets itself.
pub fn mentioned(text: &str) -> impl Iterator<Item = &str> {
    let mut at = 0;
    let mut in_double_quotes = false;
    std::iter::from_fn(move || {
        while let Some(byte) = text.as_bytes().get(at) {
            at += 1;
            match byte {
                b'\\' => at += 1,
                b'"' => in_double_quotes = !in_double_quotes,
                b'\'' if !in_double_quotes => {
                    let end = text.as_bytes()[at..].iter().position(|byte| *byte == b'\'');
                    at = end.map_or(text.len(), |end| at + end + 1);
                }
                b'$' => {
                    let rest = text.get(at..).unwrap_or_default();
                    let rest = rest.strip_prefix('{').unwrap_or(rest);
                    let name = name_at(rest.trim_start_matches(['#', '!']));
                    if !name.is_empty() && !OWN.contains(&name) {
                        return Some(name);
                    }
                }
                _ => {}
            }
        }
        None
    })
}

fn name_at(text: &str) -> &str {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_digit()) { "" } else { &text[..end] }
}

#[cfg(test)]
mod tests {
    use super::mentioned;

    #[test]
    fn names_are_found_after_a_dollar_outside_of_single_quotes() {
        let names = |text: &'static str| mentioned(text).collect::<Vec<_>>().join(" ");
        assert_eq!(names("echo $A ${B} \"$C-${D:-x}\" ${#E} ${!F}"), "A B C D E F");
        assert_eq!(names("echo '$A' \\$B \"it's $C\" $1 $? $$ $PWD $(echo $D)"), "C D");
        assert_eq!(names("awk '{print $NF}' \"$FILE\"; echo 'a"), "FILE");
        assert_eq!(names("$"), "");
    }
}
