/** Style sheets as text, which `scripts/build-bundles.mjs` puts in. */
declare module 'megalens-style' {
  const text: string;
  export default text;
}

declare module 'megalens-dark-style' {
  const text: string;
  export default text;
}
