// Before anything is drawn: the theme that was chosen here last. Without one, the system's.
try {
  const theme = localStorage.getItem('qrae.theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // storage is closed to us: the system's theme it is
}
