// Commands and programs that submit a job document again.

/** Make the command of curl that submits a document. */
export function makeCurl(toml, origin) {
  return `curl -s ${origin}/v1/jobs -H "Authorization: Bearer $DLRM_API_KEY" \\
  -H 'Content-Type: application/toml' --data-binary @- <<'END_OF_JOB'
${toml}END_OF_JOB`;
}

/** Make the commands that write a document to a file and submit it. */
export function makeSubmit(toml, origin) {
  return `export DLRM_URL=${origin}
cat > job.toml <<'END_OF_JOB'
${toml}END_OF_JOB
dlrm submit job.toml --follow`;
}

/** Make the program in Python that submits a document and waits for its end. */
export function makePython(document, origin) {
  return `from dlrm import Client

document = ${toPython(document, "")}
with Client("${origin}") as client:  # the key is in DLRM_API_KEY
    for job in client.follow(client.submit(document).id):
        print(job.state, job.progress.step)
`;
}

function toPython(value, indent) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  if (Array.isArray(value)) {
    if (value.every((each) => each === null || typeof each !== "object")) {
      return `[${value.map((each) => toPython(each, inner)).join(", ")}]`;
    }
    return `[\n${value.map((each) => `${inner}${toPython(each, inner)},\n`).join("")}${indent}]`;
  }
  const entries = Object.entries(value);
  if (!entries.length) return "{}";
  return `{\n${entries.map(([name, part]) => `${inner}${JSON.stringify(name)}: ${toPython(part, inner)},\n`).join("")}${indent}}`;
}
