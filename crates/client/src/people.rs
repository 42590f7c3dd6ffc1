//! A method for each route about users, groups and who did what: for admins.

use hostler_model::{Quota, Role, UserName, WallTime};
use hostler_proto::api::Invitation;
use hostler_proto::users::{AddUser, AuditPage, BlockUser, ChangeKeys, GroupView, ImportUsers, SetRole, UserView};

use crate::client::Call;
use crate::{Client, ClientError};

/// Every method fails with a [`ClientError`], [`ClientError::Refused`] when the head says no.
impl Client {
    /// Every user that was added.
    ///
    /// # Errors
    /// See above.
    pub async fn users(&self) -> Result<Vec<UserView>, ClientError> {
        self.call(Call::get("/users")).await
    }

    /// One user.
    ///
    /// # Errors
    /// See above.
    pub async fn user(&self, name: &UserName) -> Result<UserView, ClientError> {
        self.call(Call::get(format!("/users/{name}"))).await
    }

    /// Adds a user. Not tried again once it may have arrived: it would be there already.
    ///
    /// # Errors
    /// See above.
    pub async fn add_user(&self, user: &AddUser) -> Result<UserView, ClientError> {
        self.call(Call::post("/users").json(user).once()).await
    }

    /// Adds users or changes what they have; all or none.
    ///
    /// # Errors
    /// See above.
    pub async fn import_users(&self, users: Vec<AddUser>) -> Result<(), ClientError> {
        self.call_bytes(Call::post("/users/import").json(&ImportUsers { users })).await.map(drop)
    }

    /// Removes a user.
    ///
    /// # Errors
    /// See above.
    pub async fn remove_user(&self, name: &UserName) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/users/{name}/remove")).once()).await.map(drop)
    }

    /// Keeps an account out.
    ///
    /// # Errors
    /// See above.
    pub async fn block_user(&self, name: &UserName, block: &BlockUser) -> Result<UserView, ClientError> {
        self.call(Call::post(format!("/users/{name}/block")).json(block)).await
    }

    /// Lets an account in again. Not tried again once it may have arrived: it would be in already.
    ///
    /// # Errors
    /// See above.
    pub async fn unblock_user(&self, name: &UserName) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/users/{name}/unblock")).once()).await.map(drop)
    }

    /// Gives a user another role.
    ///
    /// # Errors
    /// See above.
    pub async fn set_role(&self, name: &UserName, role: Role) -> Result<UserView, ClientError> {
        self.call(Call::post(format!("/users/{name}/role")).json(&SetRole { role })).await
    }

    /// Adds and removes keys.
    ///
    /// # Errors
    /// See above.
    pub async fn change_keys(&self, name: &UserName, change: &ChangeKeys) -> Result<UserView, ClientError> {
        self.call(Call::post(format!("/users/{name}/keys")).json(change).once()).await
    }

    /// Says how much a user may have.
    ///
    /// # Errors
    /// See above.
    pub async fn set_user_quota(&self, name: &UserName, quota: &Quota) -> Result<UserView, ClientError> {
        self.call(Call::post(format!("/users/{name}/quota")).json(quota)).await
    }

    /// A login code for a user.
    ///
    /// # Errors
    /// See above.
    pub async fn invite_user(&self, name: &UserName) -> Result<Invitation, ClientError> {
        self.call(Call::post(format!("/users/{name}/invite"))).await
    }

    /// Groups that have a quota.
    ///
    /// # Errors
    /// See above.
    pub async fn groups(&self) -> Result<Vec<GroupView>, ClientError> {
        self.call(Call::get("/groups")).await
    }

    /// Says how much the users of a group may have together.
    ///
    /// # Errors
    /// See above.
    pub async fn set_group_quota(&self, group: &UserName, quota: &Quota) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/groups/{group}/quota")).json(quota)).await.map(drop)
    }

    /// The newest entries of the audit log, at most `limit`, that are not older than `since`.
    ///
    /// # Errors
    /// See above.
    pub async fn audit(&self, since: Option<WallTime>, limit: u32) -> Result<AuditPage, ClientError> {
        let since = since.map(|since| format!("&since={}", since.0)).unwrap_or_default();
        self.call(Call::get(format!("/audit?limit={limit}{since}"))).await
    }
}
