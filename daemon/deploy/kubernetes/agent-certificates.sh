#!/bin/sh
# A certificate of its own for the agent of each node, made here and put on the node:
#
#   agent-certificates.sh DIRECTORY [NODE...]
#
# DIRECTORY is that of 'kongming-server init-tls', with ca.key. Without NODE it is all nodes of the
# cluster, as kubectl names them. A node that has its certificate in DIRECTORY is left out; to renew
# one, remove its agent-NODE.crt and agent-NODE.key. KONGMING_SSH is how to run a command on a node
# as root, reading its standard input; ssh by default:
#
#   KONGMING_SSH="ssh -l root" agent-certificates.sh tls
#
# On the node: /etc/kongming/agent/agent.crt and agent.key, of user 7400, the key for it alone.
set -eu

directory=${1:?"usage: agent-certificates.sh DIRECTORY [NODE...]"}
shift
if [ "$#" -eq 0 ]; then
    # An assignment, so that a kubectl that fails ends this.
    nodes=$(kubectl get nodes --output 'jsonpath={.items[*].metadata.name}')
    # One name a word: names of nodes are DNS names.
    # shellcheck disable=SC2086
    set -- $nodes
    if [ "$#" -eq 0 ]; then
        echo "kubectl names no node" >&2
        exit 1
    fi
fi

for node in "$@"; do
    if [ -e "$directory/agent-$node.key" ]; then
        echo "$node has its certificate"
        continue
    fi
    # A new one is known by its file only once the node has it.
    new=$(mktemp -d)
    trap 'rm -rf "$new"' EXIT
    cp "$directory/ca.crt" "$directory/ca.key" "$new/"
    kongming-server init-tls "$new" --agent "$node" >/dev/null
    # The key goes by standard input: a command line can be read by others.
    tar -C "$new" -cf - "agent-$node.crt" "agent-$node.key" |
        ${KONGMING_SSH:-ssh} "$node" "set -eu; umask 077
            mkdir -p /etc/kongming/agent && cd /etc/kongming/agent
            tar -xf - --no-same-owner
            chown 7400:7400 . agent-$node.crt agent-$node.key
            mv agent-$node.key agent.key && mv agent-$node.crt agent.crt"
    mv "$new/agent-$node.crt" "$new/agent-$node.key" "$directory/"
    rm -rf "$new"
    echo "$node has a new certificate"
done
