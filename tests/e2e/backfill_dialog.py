"""Airflow's own dialog for backfills, as a person fills it in."""

from datetime import datetime

from playwright.sync_api import Page, expect


class BackfillDialog:
    """*Trigger*, *Backfill* on the page of a Dag; of a browser whose time zone is UTC."""

    def __init__(self, page: Page, dag_id: str) -> None:
        self._page = page
        page.goto(f"/dags/{dag_id}")
        page.get_by_role("button", name="Trigger").first.click()
        self._dialog = page.get_by_role("dialog").filter(has_text=dag_id)
        self.choose("Backfill")

    def choose(self, label: str) -> None:
        """The kind of run, or what is done with runs that exist."""
        self._dialog.get_by_text(label, exact=True).click()
        expect(self._dialog.get_by_role("radio", name=label, exact=True)).to_be_checked()

    def fill(self, start: datetime, last: datetime) -> None:
        """From and To, which are instants at which intervals begin, both inclusive."""
        for label, instant in (("From", start), ("To", last)):
            field = self._page.get_by_text(label, exact=True)
            self._dialog.get_by_role("group").filter(has=field).get_by_role("paragraph").click()
            time = self._page.get_by_placeholder("HH:mm")
            picker = self._page.get_by_role("dialog").filter(has=time)
            expect(picker).to_contain_text("UTC")
            picker.get_by_placeholder("YYYY/MM/DD").fill(f"{instant:%Y/%m/%d}")
            time.fill(f"{instant:%H:%M}")
            self._dialog.get_by_role("heading").click()
            expect(picker).to_be_hidden()

    def expect_to_say(self, text: str) -> None:
        expect(self._dialog.get_by_text(text, exact=True)).to_be_visible()

    def run(self) -> None:
        """Have the backfill made, and see Airflow say so."""
        self._dialog.get_by_role("button", name="Run Backfill").click()
        expect(self._page.get_by_text("Backfill generated").first).to_be_visible()
        expect(self._dialog).to_be_hidden()

    def expect_nothing_to_run(self) -> None:
        expect(self._dialog.get_by_role("button", name="Run Backfill")).to_be_disabled()
