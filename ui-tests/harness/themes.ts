/** JupyterLab's variables that the styles read, as its two themes have them. */
export const THEMES: Record<'light' | 'dark', Record<string, string>> = {
  light: {
    '--jp-layout-color0': '#ffffff',
    '--jp-layout-color1': '#ffffff',
    '--jp-layout-color2': '#eeeeee',
    '--jp-ui-font-color0': 'rgba(0, 0, 0, 1)',
    '--jp-ui-font-color1': 'rgba(0, 0, 0, 0.87)',
    '--jp-ui-font-color2': 'rgba(0, 0, 0, 0.54)',
    '--jp-border-color1': '#bdbdbd',
    '--jp-border-color2': '#e0e0e0',
    '--jp-border-color3': '#eeeeee',
    '--jp-brand-color1': '#1976d2',
    '--jp-error-color1': '#d32f2f',
    '--jp-warn-color1': '#f57c00',
    '--jp-content-link-color': '#1565c0'
  },
  dark: {
    '--jp-layout-color0': '#111111',
    '--jp-layout-color1': '#212121',
    '--jp-layout-color2': '#424242',
    '--jp-ui-font-color0': 'rgba(255, 255, 255, 1)',
    '--jp-ui-font-color1': 'rgba(255, 255, 255, 0.87)',
    '--jp-ui-font-color2': 'rgba(255, 255, 255, 0.54)',
    '--jp-border-color1': '#616161',
    '--jp-border-color2': '#424242',
    '--jp-border-color3': '#212121',
    '--jp-brand-color1': '#64b5f6',
    '--jp-error-color1': '#e57373',
    '--jp-warn-color1': '#ffb74d',
    '--jp-content-link-color': '#64b5f6'
  }
};
