document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const button = document.querySelector(`button[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
  if (button) button.click();
});
