//! The reading of shell text, compared with another parser: both must see the same programs.

use std::io::Cursor;

use brush_parser::ast;

use avfs_policy::Word;

/// The first words of the simple commands that stand in a text itself, as they are written; nothing in substitutions.
fn programs_of(text: &str) -> Option<Vec<String>> {
    let mut parser = brush_parser::Parser::new(Cursor::new(text), &brush_parser::ParserOptions::default());
    let program = parser.parse_program().ok()?;
    let mut found = Vec::new();
    for list in &program.complete_commands {
        of_list(list, &mut found);
    }
    Some(found)
}

fn of_list(list: &ast::CompoundList, found: &mut Vec<String>) {
    for ast::CompoundListItem(and_or, _) in &list.0 {
        for (_, pipeline) in and_or {
            for command in &pipeline.seq {
                of_command(command, found);
            }
        }
    }
}

fn of_command(command: &ast::Command, found: &mut Vec<String>) {
    match command {
        ast::Command::Simple(simple) => {
            found.extend(simple.word_or_name.as_ref().map(|word| word.value.clone()))
        }
        ast::Command::Compound(compound, _) => of_compound(compound, found),
        ast::Command::Function(function) => of_compound(&function.body.0, found),
        ast::Command::ExtendedTest(..) => found.push("[[".to_owned()),
    }
}

fn of_compound(compound: &ast::CompoundCommand, found: &mut Vec<String>) {
    match compound {
        ast::CompoundCommand::Arithmetic(_) => {}
        ast::CompoundCommand::ArithmeticForClause(clause) => of_list(&clause.body.list, found),
        ast::CompoundCommand::BraceGroup(group) => of_list(&group.list, found),
        ast::CompoundCommand::Subshell(group) => of_list(&group.list, found),
        ast::CompoundCommand::ForClause(clause) => of_list(&clause.body.list, found),
        ast::CompoundCommand::CaseClause(clause) => {
            clause.cases.iter().filter_map(|case| case.cmd.as_ref()).for_each(|list| of_list(list, found));
        }
        ast::CompoundCommand::IfClause(clause) => {
            of_list(&clause.condition, found);
            of_list(&clause.then, found);
            for branch in clause.elses.iter().flatten() {
                branch.condition.iter().for_each(|list| of_list(list, found));
                of_list(&branch.body, found);
            }
        }
        ast::CompoundCommand::WhileClause(clause) | ast::CompoundCommand::UntilClause(clause) => {
            of_list(&clause.0, found);
            of_list(&clause.1.list, found);
        }
        ast::CompoundCommand::Coprocess(coprocess) => of_command(&coprocess.body, found),
    }
}

/// The programs of a text are among those of the reading, in their order.
pub fn agrees(text: &str) -> Result<(), String> {
    let reading = crate::shell(text);
    // It takes time beyond measure for open groups, reads `time` in a way of its own, and a quote after a dollar as is
    // told below.
    let is_weak = text.contains("time") || text.contains("$'") || text.len() > 120;
    if !reading.doubts.is_empty() || is_weak {
        return Ok(());
    }
    let Some(theirs) = programs_of(text) else { return Ok(()) };
    let mut ours = reading.commands.iter().filter_map(|command| command.words.first()).map(Word::shown);
    for program in theirs {
        // Only names that are written plainly look the same to both.
        let is_plain = program.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte));
        if is_plain && program != "time" && !ours.any(|name| name == program) {
            return Err(format!("{program:?} of {text:?} is not seen in {reading:?}"));
        }
    }
    Ok(())
}

#[test]
fn another_parser_sees_the_same_programs_in_the_corpus() {
    for text in crate::corpus::texts() {
        agrees(&text).unwrap();
    }
}

/// Why text is not read with that parser: it takes the quote after an escaped dollar for `$'…'`, and so hides a command.
#[test]
fn a_quote_after_an_escaped_dollar_hides_nothing() {
    let text = r"echo \$'\'; rm -rf x; echo '\'";
    assert_eq!(programs_of(text).unwrap(), ["echo"]);
    let reading = crate::shell(text);
    let programs: Vec<&str> = reading.commands.iter().map(|command| command.words[0].shown()).collect();
    assert_eq!(programs, ["echo", "rm", "echo"]);
}

#[test]
fn words_are_what_the_shell_would_pass_on() {
    let known = |text: &str| -> Vec<String> {
        crate::shell(text).commands[0]
            .words
            .iter()
            .map(|word| word.known().unwrap_or("?").to_owned())
            .collect()
    };
    assert_eq!(known(r#"echo a"b c"'d e'\ f"#), ["echo", "ab cd e f"]);
    assert_eq!(known(r"echo $'a\tb\x41\102\u0043'"), ["echo", "a\tbABC"]);
    assert_eq!(
        known("echo a{b,c}d {x,y{1,2}} {} {a} a,b"),
        ["echo", "abd", "acd", "x", "y1", "y2", "{}", "{a}", "a,b"]
    );
    assert_eq!(known(r#"echo "a\"b\$c\d" '' """#), ["echo", r#"a"b$c\d"#, "", ""]);
    assert_eq!(
        known("echo ~ ~/x $HOME/y \"${HOME}\" ~u a~"),
        ["echo", "/home/u", "/home/u/x", "/home/u/y", "/home/u", "?", "a~"]
    );
    assert_eq!(known("echo $x *.c [a]b [ ? a\\*"), ["echo", "?", "?", "?", "[", "?", "a*"]);
    assert_eq!(known("HOME=/etc; echo ~/x")[0], "HOME=/etc");
    assert_eq!(known("echo {1..3} a\\\nb"), ["echo", "?", "ab"]);
}

#[test]
fn commands_are_in_the_order_they_are_written_and_wrappers_before_what_they_run() {
    let reading = crate::shell("ls; timeout 5 env A=1 sort f | wc; echo $(date)");
    let programs: Vec<&str> = reading.commands.iter().map(|command| command.words[0].shown()).collect();
    assert_eq!(programs, ["ls", "timeout", "env", "sort", "wc", "date", "echo"]);
}
