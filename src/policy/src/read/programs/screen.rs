//! Forms of full-screen programs that do not need a terminal.

use super::Screen;
use crate::read::findings::Call;
use crate::read::options::lists;
use crate::reading::Word;

/// Names of vim: `-e` and `-s` together make it a batch editor, and a quit command ends it.
const VIM: &str = "vi vim nvim rvim vimdiff view";

impl Screen {
    /// True if an option makes it work without a terminal.
    pub fn is_batch(&self, call: &Call<'_>) -> bool {
        let words = || call.args.iter().map(Word::shown);
        let letters = |word: &str| {
            let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
            letters.map(str::to_owned).unwrap_or_default()
        };
        let has = |wanted: &[char]| words().any(|word| letters(word).contains(wanted));
        let is_vim = lists(VIM, call.name);
        let by_word = words().filter(|word| word.starts_with('-')).any(|word| {
            let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
            let short = letters(word);
            lists(self.batch, name)
                || !is_vim && short.chars().any(|letter| lists(self.batch, &letter.to_string()))
        });
        by_word || is_vim && (has(&['e', 'E']) && has(&['s']) || quits(call.args))
    }
}

/// `+wq`, `-c wq`, `-c '%s/a/b/ | x'`.
fn quits(args: &[Word]) -> bool {
    const QUIT: &str =
        "q q! qa qa! quit quit! quitall quitall! wq wq! wqa wqa! wqall x x! xa xa! xall exit cq cq!";
    let after_plus = args.iter().filter_map(|word| word.shown().strip_prefix('+'));
    let after_c = args.windows(2).filter(|pair| pair[0].shown() == "-c").map(|pair| pair[1].shown());
    let last = |command: &str| {
        let last = command.rsplit('|').next().unwrap_or_default().trim();
        lists(QUIT, last.trim_start_matches(':'))
    };
    after_plus.chain(after_c).any(last)
}
