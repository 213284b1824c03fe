//! Returns unused space of the vault file to the disk.

use avfs_wire::Compact;
use avfs_workplace::{Client, OpError};

pub fn compact(client: &Client) -> Result<Compact, OpError> {
    client.free_space(|| {
        let vault = client.open()?.vault;
        let size = || vault.read().and_then(|reader| Ok(reader.usage()?.file_bytes));
        let file_bytes_before = size()?;
        {
            let _shown = client.observer.whole_operation("compacting");
            vault.backend().shrink(&|_| {})?;
            vault.backend().settle()?;
        }
        Ok(Compact { file_bytes_before, file_bytes_after: size()? })
    })
}
