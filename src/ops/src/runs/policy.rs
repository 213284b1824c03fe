//! The policies, evaluated for a command without running it, and the examples of their rules.

use std::path::{Path, PathBuf};

use avfs_engine::config_files::ConfigTexts;
use avfs_engine::{FileText, LocateError, PolicyTexts, bound_dir};
use avfs_policy::{EXPLAIN_HINT, ExecutionDecision, Explanation, Layer, Script, Tier};
use avfs_request::{ExecutionRequest, Outside, RunSpec, SecretWord, Terminal};
use avfs_wire::{PolicyCheck, PolicyExplain, PolicyTest, PolicyTested};
use avfs_workplace::{Client, OpError, WorkplaceError};

/// The request to evaluate.
pub struct PolicyQuery<'q> {
    pub spec: &'q RunSpec,
    /// Whether the streams of the command would be a terminal.
    pub streams: Terminal,
}

/// The decision for a command.
pub fn check_policy(
    client: &Client,
    query: &PolicyQuery<'_>,
) -> Result<(PolicyCheck, ExecutionDecision), OpError> {
    let (Explanation { decision, .. }, texts) = ask(client, query)?;
    Ok((avfs_present::policy_check(&decision, &texts), decision))
}

/// What each rule, profile and cap decides about a command.
pub fn explain_policy(
    client: &Client,
    query: &PolicyQuery<'_>,
) -> Result<(PolicyExplain, Explanation), OpError> {
    let (mut explanation, texts) = ask(client, query)?;
    // The hint names this verb.
    explanation.decision.hint = explanation.decision.hint.filter(|hint| hint != EXPLAIN_HINT);
    Ok((avfs_present::policy_explain(&explanation, &texts), explanation))
}

/// The vault and the bound directory for a command in the working directory.
struct PolicySite {
    vault: Option<PathBuf>,
    bound: Option<PathBuf>,
}

impl PolicySite {
    /// Without a vault both are `None`, which is not an error here.
    fn find(client: &Client) -> Result<Self, OpError> {
        match client.surroundings.locate(client.vault_option.as_deref()) {
            Err(LocateError::NoneNear { .. }) => Ok(Self { vault: None, bound: None }),
            Err(other) => Err(other.into()),
            Ok(located) => Ok(Self { vault: Some(located.path), bound: bound_dir(&client.open()?.vault)? }),
        }
    }
}

/// Evaluates the policies as a run with these options would.
fn ask(client: &Client, query: &PolicyQuery<'_>) -> Result<(Explanation, PolicyTexts), OpError> {
    let (site, surroundings) = (PolicySite::find(client)?, &client.surroundings);
    let texts = PolicyTexts::read(surroundings, site.vault.as_deref())?;
    let (config, _) = ConfigTexts::read(surroundings, site.bound.as_deref())?.for_a_run()?;
    let mut variables = surroundings.variables.clone();
    // Treat secrets as set: nothing is run.
    for word in &query.spec.secret {
        if let SecretWord::Variable(name) | SecretWord::InFile(name) = SecretWord::parse(word)? {
            variables.entry(name).or_default();
        }
    }
    let outside = Outside {
        cwd: surroundings.cwd.clone(),
        environment: variables.into_iter().collect(),
        terminal: Terminal::None,
        streams: query.streams,
    };
    let request = ExecutionRequest::resolve(query.spec, &outside, &config)?;
    let bound = site.bound.unwrap_or_else(|| surroundings.cwd.clone());
    Ok((avfs_engine::explain(&texts.policy()?, &request, bound, surroundings)?, texts))
}

/// Tests the examples of the rules in a file, or in the files of all layers.
pub fn test_policies(client: &Client, file: Option<&Path>) -> Result<PolicyTest, OpError> {
    let texts: Vec<FileText> = match file {
        Some(file) => {
            let file = client.surroundings.cwd.join(file);
            let text = avfs_hostfs::text::read(&file).map_err(WorkplaceError::host("read", &file))?;
            vec![FileText { path: file, text: Some(text) }]
        }
        None => {
            let texts = PolicyTexts::read(&client.surroundings, PolicySite::find(client)?.vault.as_deref())?;
            texts.files().map(|(_, file)| file.clone()).collect()
        }
    };
    let mut result = PolicyTest { files: Vec::new(), failures: Vec::new() };
    for FileText { path, text } in &texts {
        if let Some(text) = text {
            test_file(path, text, &mut result)?;
        }
    }
    if result.files.is_empty() {
        client.note(format_args!("no policy files found; only the built-in rules apply"));
    }
    Ok(result)
}

fn test_file(path: &Path, text: &str, result: &mut PolicyTest) -> Result<(), OpError> {
    let shown = path.to_string_lossy().into_owned();
    if path.extension().is_some_and(|extension| extension == "rego") {
        Script::parse(path, text)?;
        result.files.push(PolicyTested { path: shown, rules: 1, examples: 0 });
        return Ok(());
    }
    // The layer does not affect which commands the examples match.
    let layer = Layer::parse_unchecked(Tier::User, path, text)?;
    let examples = layer.rules.iter().map(|rule| rule.examples.len() as u64).sum();
    result.files.push(PolicyTested { path: shown, rules: layer.rules.len() as u64, examples });
    let failed = layer.rules.iter().flat_map(|rule| rule.failed_examples(avfs_policy::read));
    result.failures.extend(failed.map(|failed| avfs_present::policy_failure(&failed)));
    Ok(())
}
