// Airflow makes the backfill, asked by whoever is logged in: this page itself changes nothing.
const make = document.getElementById("make");
make?.addEventListener("click", async () => {
  const made = document.getElementById("made");
  make.disabled = true;
  made.textContent = "asking Airflow";
  try {
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch(make.dataset.api, { method: "POST", headers, body: make.dataset.request });
    if (answer.status === 403) throw new Error("you may not make backfills of this Dag. Ask whoever manages Airflow's users for the right to.");
    const said = await answer.json();
    if (!answer.ok) throw new Error(typeof said.detail === "string" ? said.detail : JSON.stringify(said.detail));
    made.textContent = `made: backfill ${said.id}. The Dag's tab Backfills has it, and its runs are in the grid.`;
  } catch (error) {
    made.textContent = `Airflow has not made it: ${error.message}`;
    make.disabled = false;
  }
});
