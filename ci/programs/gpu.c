/* A GPU for pyverbs, by the kernel's driver vgem. Preloaded into its tests (ci/ports/pyverbs).
 *
 * pyverbs allocates DMA buffers from GPUs of the drivers amdgpu and i915 alone, because each driver of a GPU has its own
 * requests for that. vgem has the requests that drivers of screens share: "dumb" buffers, in RAM. This library gives
 * vgem the name i915, and translates the two requests of i915 that allocate a buffer and find its place for mmap. The
 * buffers, their export, their mappings, and every other request are the kernel's.
 */
#include <drm/drm.h>
#include <drm/i915_drm.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OWN_NAME "vgem"
#define GIVEN_NAME "i915"
enum { NAME_LENGTH = sizeof(OWN_NAME) - 1, BITS_PER_PIXEL = 32, WIDTH = 1024, ROW = WIDTH * BITS_PER_PIXEL / 8 };

static int pass(int file, unsigned long request, void *argument)
{
	return syscall(SYS_ioctl, file, request, argument);
}

static int version(int file, struct drm_version *version)
{
	size_t room = version->name_len;
	int result = pass(file, DRM_IOCTL_VERSION, version);

	if (result == 0 && room >= NAME_LENGTH && version->name_len == NAME_LENGTH &&
	    memcmp(version->name, OWN_NAME, NAME_LENGTH) == 0)
		memcpy(version->name, GIVEN_NAME, NAME_LENGTH);
	return result;
}

/* Allocates whole rows. */
static int allocate(int file, struct drm_i915_gem_create *create)
{
	struct drm_mode_create_dumb dumb = {
		.width = WIDTH, .height = create->size / ROW + (create->size % ROW != 0), .bpp = BITS_PER_PIXEL,
	};
	int result = pass(file, DRM_IOCTL_MODE_CREATE_DUMB, &dumb);

	if (result == 0) {
		create->size = dumb.size;
		create->handle = dumb.handle;
	}
	return result;
}

static int place(int file, struct drm_i915_gem_mmap_gtt *map)
{
	struct drm_mode_map_dumb dumb = { .handle = map->handle };
	int result = pass(file, DRM_IOCTL_MODE_MAP_DUMB, &dumb);

	if (result == 0)
		map->offset = dumb.offset;
	return result;
}

int ioctl(int file, unsigned long request, ...)
{
	va_list rest;
	void *argument;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	switch (request) {
	case DRM_IOCTL_VERSION:
		return version(file, argument);
	case DRM_IOCTL_I915_GEM_CREATE:
		return allocate(file, argument);
	case DRM_IOCTL_I915_GEM_MMAP_GTT:
		return place(file, argument);
	default:
		return pass(file, request, argument);
	}
}
