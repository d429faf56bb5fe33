/** Write seconds as people read them: `48 s`, `12 min`, `3 h 05 min`, `2 d 4 h`. */
export function formatDuration(seconds: number): string {
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  const hours = Math.floor(minutes / 60);
  if (whole < 60) {
    return `${whole}\u00a0s`;
  }
  if (minutes < 60) {
    return `${minutes}\u00a0min`;
  }
  return hours < 24
    ? `${hours}\u00a0h ${String(minutes % 60).padStart(2, '0')}\u00a0min`
    : `${Math.floor(hours / 24)}\u00a0d ${hours % 24}\u00a0h`;
}
