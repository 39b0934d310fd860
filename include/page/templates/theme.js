// In Airflow: its own light or dark, as a person has chosen there, which a frame does not inherit.
if (window.parent !== window) {
  const airflow = window.parent.document.documentElement;
  const follow = () => { document.documentElement.style.colorScheme = airflow.style.colorScheme; };
  new MutationObserver(follow).observe(airflow, { attributeFilter: ["class", "style"] });
  follow();
}
