// Airflow makes the backfill, asked by whoever is logged in: this page itself changes nothing.
const make = document.getElementById("make");
make?.addEventListener("click", async () => {
  const made = document.getElementById("made");
  make.disabled = true;
  made.textContent = "asking Airflow";
  try {
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch(make.dataset.api, { method: "POST", headers, body: make.dataset.request });
    if (answer.status === 401) throw new Error("you are not logged in any more. Load this page once more, and log in.");
    if (answer.status === 403) throw new Error("you may not make backfills of this Dag. Ask whoever manages Airflow's users for the right to.");
    const said = await read(answer);
    if (!answer.ok) throw new Error(typeof said.detail === "string" ? said.detail : JSON.stringify(said.detail));
    made.textContent = `made: backfill ${said.id}. The Dag's tab Backfills has it, and its runs are in the grid.`;
  } catch (error) {
    made.textContent = `Airflow has not made it: ${error.message}`;
    make.disabled = false;
  }
});

// What Airflow says. Something between here and there (a proxy) may say another thing, and not as JSON.
async function read(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`the answer, HTTP ${answer.status}, is not Airflow's: ${text.slice(0, 200)}`);
  }
}
