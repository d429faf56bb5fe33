import { LabIcon } from '@jupyterlab/ui-components';

/** A lens over bars. `jp-icon3` lets the theme colour it. */
export const megalensIcon = new LabIcon({
  name: 'megalens:lens',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3" fill="#616161">
    <path d="M10.5 2a8.5 8.5 0 1 0 5.2 15.2l4.6 4.6a1.1 1.1 0 0 0 1.6-1.6l-4.6-4.6A8.5 8.5 0 0 0 10.5 2zm0 2a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13z"/>
    <rect x="6.7" y="10" width="1.9" height="4" rx=".6"/>
    <rect x="9.6" y="7" width="1.9" height="7" rx=".6"/>
    <rect x="12.5" y="8.8" width="1.9" height="5.2" rx=".6"/>
  </g>
</svg>`
});
