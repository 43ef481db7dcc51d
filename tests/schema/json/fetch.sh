#!/usr/bin/env bash
# How the two files beside this script came here, and how they are renewed:
#     tests/schema/json/fetch.sh 2.4.0
# They are unchanged members of the npm package @agentclientprotocol/sdk, which publishes the JSON Schema of the
# Agent Client Protocol under the Apache licence, version 2.0. Needs npm and the network; no test runs it.
set -euo pipefail

version="${1:?which version of @agentclientprotocol/sdk?}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
work="$(mktemp -d)"
trap 'rm -r "$work"' EXIT

cd "$work"
npm pack --silent "@agentclientprotocol/sdk@$version"
tar -xzf "agentclientprotocol-sdk-$version.tgz" package/schema/v1/schema.json package/LICENSE
cp package/schema/v1/schema.json "$here/acp-v1.schema.json"
cp package/LICENSE "$here/LICENSE"
echo "$version" >"$here/VERSION"
